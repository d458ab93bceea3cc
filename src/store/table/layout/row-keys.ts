import { afterPrefix, type KeyRange } from '../../../bytes/key-range.js'
import { isReserved } from '../../../bytes/reserved-keys.js'
import type { RegistryName } from '../../../cluster/registry-rows.js'
import { CELL_KEY_BYTES_MAX } from '../../../observers/rules/codec/cell-key.js'
import { reservedKey, reservedName } from '../../../percolator/codec/reserved-key.js'
import type { SystemName } from '../../system-records.js'
import type { RowRange, TableEngine } from './table.js'

/** Rows of the server begin with two zeros. */
const SERVER = Buffer.from([0, 0])
/** Limit of a user's key. The rows of its cells have longer keys. */
export function keyBytesMaxOf({ rowKeyBytesMax }: TableEngine): number {
  return rowKeyBytesMax - SERVER.length - CELL_KEY_BYTES_MAX
}

/** Limit of one value. A row may have 256 MiB with all its versions, which much larger values would soon fill. */
export const VALUE_BYTES_MAX = 16 * 1024 * 1024

/** A user's key that begins with 0x00 begins with these bytes in the table, which keeps the order. */
const ESCAPED = Buffer.from([0, 1])

export function rowKeyOf(key: Uint8Array): Buffer {
  return isReserved(key) ? Buffer.concat([SERVER, reservedName(key)]) : escaped(key)
}

function escaped(key: Uint8Array): Buffer {
  if (key[0] !== 0) return Buffer.from(key.buffer, key.byteOffset, key.length)
  return Buffer.concat([ESCAPED, key.subarray(1)])
}

export function keyOfRow(rowKey: Buffer): Buffer {
  if (rowKey[0] !== 0) return rowKey
  if (rowKey[1] === 0) return reservedKey(rowKey.subarray(SERVER.length))
  return Buffer.concat([SERVER.subarray(1), rowKey.subarray(ESCAPED.length)])
}

export function rowRangeOf({ start, end }: KeyRange): RowRange {
  return { start: start === undefined || start.length === 0 ? ESCAPED : escaped(start), end: end && boundOf(end) }
}

/** Rows of users and of the server. @param start any key, even a reserved one. */
export function allRowsFrom(start?: Uint8Array): RowRange {
  return { start: start === undefined ? SERVER : rowKeyOf(start), end: undefined }
}

export function reservedRowRange(prefix: Uint8Array): RowRange {
  const start = rowKeyOf(prefix)
  const end = afterPrefix(start)
  return { start, end: end && Buffer.from(end) }
}

/** No key is below an empty bound. */
function boundOf(end: Uint8Array): Buffer {
  return end.length === 0 ? ESCAPED : escaped(end)
}

export function isRowOfUser(rowKey: Buffer): boolean {
  return rowKey[0] !== 0 || rowKey[1] !== 0
}

const OF_CLUSTER = /^(?:oracle$|server\/|job\/|format$|restore$|safe-point$)/

/** The few small rows without which servers cannot go on. */
export function isRowOfCluster(rowKey: Buffer): boolean {
  return !isRowOfUser(rowKey) && OF_CLUSTER.test(rowKey.toString('latin1', SERVER.length))
}

export function rowKeyOfSystem(
  name: SystemName | RegistryName | 'oracle' | 'secret' | 'probe' | 'safe-point' | 'restore' | 'format' | 'feed',
): Buffer {
  return Buffer.concat([SERVER, Buffer.from(name, 'latin1')])
}

export function systemNameOf(rowKey: Buffer): SystemName {
  return rowKey.toString('latin1', SERVER.length) as SystemName
}
