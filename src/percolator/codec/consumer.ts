import type { Consumer } from '../consumer.js'
import { asInteger, asOptionalBytes, packRecord, unpackRecord } from './record.js'

const CONSUMER = 'consumer'

export function encodeConsumer({ id, range, holdMs, position, ackedTs, startTs, commitTs }: Consumer): Buffer {
  const { prefix, start, end } = range
  return packRecord([id, position, ackedTs, startTs, commitTs, holdMs, prefix ?? null, start ?? null, end ?? null])
}

/** @throws CorruptRecord */
export function decodeConsumer(name: string, bytes: Uint8Array): Consumer {
  const [id, position, ackedTs, startTs, commitTs, holdMs, prefix, start, end] = unpackRecord(bytes, CONSUMER, 9)
  const before = asOptionalBytes(prefix, CONSUMER)
  return {
    id: asInteger(id, CONSUMER),
    name,
    range:
      before !== undefined
        ? { prefix: before }
        : { start: asOptionalBytes(start, CONSUMER), end: asOptionalBytes(end, CONSUMER) },
    holdMs: asInteger(holdMs, CONSUMER),
    position: asInteger(position, CONSUMER),
    ackedTs: asInteger(ackedTs, CONSUMER),
    startTs: asInteger(startTs, CONSUMER),
    commitTs: asInteger(commitTs, CONSUMER),
  }
}
