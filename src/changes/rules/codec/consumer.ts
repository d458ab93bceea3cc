import { rangeFields, rangeIn } from '../../../percolator/codec/given-range.js'
import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Consumer } from '../consumer.js'

const CONSUMER = 'consumer'

export function encodeConsumer({ id, range, holdMs, position, ackedTs, startTs, commitTs }: Consumer): Buffer {
  return packRecord([id, position, ackedTs, startTs, commitTs, holdMs, ...rangeFields(range)])
}

export function decodeConsumer(name: string, bytes: Uint8Array): Consumer {
  const [id, position, ackedTs, startTs, commitTs, holdMs, ...range] = unpackRecord(bytes, CONSUMER, 9)
  return {
    id: asInteger(id, CONSUMER),
    name,
    range: rangeIn(range, CONSUMER),
    holdMs: asInteger(holdMs, CONSUMER),
    position: asInteger(position, CONSUMER),
    ackedTs: asInteger(ackedTs, CONSUMER),
    startTs: asInteger(startTs, CONSUMER),
    commitTs: asInteger(commitTs, CONSUMER),
  }
}
