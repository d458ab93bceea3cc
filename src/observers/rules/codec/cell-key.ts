import { isReserved } from '../../../bytes/reserved-keys.js'
import { asInteger, asOneOf, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { reservedKey, reservedName } from '../../../percolator/codec/reserved-key.js'
import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import { MARK_KINDS, type MarkKind } from '../cell.js'

/**
 * Where several servers share a store, acknowledgements and notifications of cells are rows in transactions, with locks and
 * write records like any other. A run that acknowledges a cell puts the row of its acknowledgement. A transaction that notifies
 * a cell puts a row under its own start_ts, so that no two of them conflict.
 */
const ACK = Buffer.from('ack/')
const NOTIFIED = Buffer.from('notified/')
const LENGTH_BYTES = 2
const COMPLEMENT = 0xff

/** Most bytes of such a key besides the cell's key and the prefix of reserved keys. */
export const CELL_KEY_BYTES_MAX = NOTIFIED.length + TS_BYTES + LENGTH_BYTES + TS_BYTES

export interface CellName {
  /** Id of the observer. */
  readonly id: Timestamp
  readonly key: Uint8Array
}

export function ackKey({ id, key }: CellName): Buffer {
  return reservedKey(Buffer.concat([ACK, bigEndian(id), key]))
}

/** Sorts by start_ts, newest first. */
export function notifiedKey(cell: CellName, startTs: Timestamp): Buffer {
  const at = bigEndian(startTs)
  for (let i = 0; i < at.length; i++) at[i] = COMPLEMENT - (at[i] as number)
  return Buffer.concat([notifiedPrefix(cell), at])
}

/** Prefix of all notifications of one cell, and of nothing else. */
export function notifiedPrefix({ id, key }: CellName): Buffer {
  const length = Buffer.alloc(LENGTH_BYTES)
  length.writeUInt16BE(key.length)
  return reservedKey(Buffer.concat([NOTIFIED, bigEndian(id), length, key]))
}

export function cellKeyPrefixes(id: Timestamp): readonly [ack: Buffer, notified: Buffer] {
  return [reservedKey(Buffer.concat([ACK, bigEndian(id)])), reservedKey(Buffer.concat([NOTIFIED, bigEndian(id)]))]
}

/** Whether a row with this key belongs to transactions, and is not a standalone record. */
export function isCellKey(key: Uint8Array): boolean {
  if (!isReserved(key)) return false
  const name = reservedName(key)
  return [ACK, NOTIFIED].some((kind) => name.subarray(0, kind.length).equals(kind))
}

/** @returns the cell of a notification; undefined for any other key. @throws CorruptRecord */
export function notifiedCell(key: Uint8Array): CellName | undefined {
  if (!isReserved(key)) return undefined
  const name = reservedName(key)
  if (!name.subarray(0, NOTIFIED.length).equals(NOTIFIED)) return undefined
  const id = readTs(name, NOTIFIED.length, 'notification')
  return { id, key: name.subarray(NOTIFIED.length + TS_BYTES + LENGTH_BYTES, name.length - TS_BYTES) }
}

/** @returns the cell of an acknowledgement; undefined for any other key. @throws CorruptRecord */
export function ackedCell(key: Uint8Array): CellName | undefined {
  if (!isReserved(key)) return undefined
  const name = reservedName(key)
  if (!name.subarray(0, ACK.length).equals(ACK)) return undefined
  return { id: readTs(name, ACK.length, 'acknowledgement'), key: name.subarray(ACK.length + TS_BYTES) }
}

// ---- Their values

export function encodeAckTs(ackTs: Timestamp): Buffer {
  return packRecord([ackTs])
}

export function decodeAckTs(value: Uint8Array): Timestamp {
  return asInteger(unpackRecord(value, 'acknowledgement', 1)[0], 'acknowledgement')
}

export interface Notified {
  readonly kind: MarkKind
  readonly depth: number
  /** The row records the outcome of its transaction, so it stays after it is covered. */
  readonly isKept?: boolean | undefined
}

export function encodeNotified({ kind, depth, isKept }: Notified): Buffer {
  return packRecord([MARK_KINDS.indexOf(kind), depth, isKept ? 1 : 0])
}

export function decodeNotified(value: Uint8Array): Notified {
  const [kind, depth, isKept] = unpackRecord(value, 'notification', 3)
  return {
    kind: asOneOf(kind, 'notification', MARK_KINDS),
    depth: asInteger(depth, 'notification'),
    isKept: asInteger(isKept, 'notification') === 1,
  }
}

function bigEndian(ts: Timestamp): Buffer {
  const out = Buffer.allocUnsafe(TS_BYTES)
  writeTs(out, ts, 0)
  return out
}
