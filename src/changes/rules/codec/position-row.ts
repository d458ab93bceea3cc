import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { reservedKey } from '../../../percolator/codec/reserved-key.js'
import { TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import type { Consumer } from '../consumer.js'

/**
 * Where several servers share a store, a transaction that acknowledges for a consumer puts this row. Its key has the id of the
 * consumer and its last reset, so what was acknowledged before a reset does not count after it.
 */
export interface PositionRow {
  readonly ackedTs: Timestamp
  /** Of the transaction. */
  readonly startTs: Timestamp
}

const POSITION = 'position'
const PREFIX = reservedKey(Buffer.from(`${POSITION}/`))

export function positionKey({ id, commitTs }: Pick<Consumer, 'id' | 'commitTs'>): Buffer {
  return Buffer.concat([PREFIX, bigEndian(id), bigEndian(commitTs)])
}

export function isPositionKey(key: Uint8Array): boolean {
  return key.length === PREFIX.length + 2 * TS_BYTES && PREFIX.equals(key.subarray(0, PREFIX.length))
}

export function encodePosition({ ackedTs, startTs }: PositionRow): Buffer {
  return packRecord([ackedTs, startTs])
}

/** @throws CorruptRecord */
export function decodePosition(bytes: Uint8Array): PositionRow {
  const [ackedTs, startTs] = unpackRecord(bytes, POSITION, 2)
  return { ackedTs: asInteger(ackedTs, POSITION), startTs: asInteger(startTs, POSITION) }
}

function bigEndian(ts: Timestamp): Buffer {
  const out = Buffer.allocUnsafe(TS_BYTES)
  writeTs(out, ts, 0)
  return out
}
