import { keyText } from '../bytes/key-text.js'
import type { Timestamp } from '../timestamp.js'
import { ID_BYTES, idIn, idText } from './id-text.js'
import type { SystemName } from './system-records.js'

export type CellKind = 'notify' | 'ack' | 'failure'
export const CELL_KINDS: readonly CellKind[] = ['notify', 'ack', 'failure']

/** `KIND/`, the observer's id as 8 bytes big endian, and the key, so that an observer's cells sort by key. */
export function cellName(kind: CellKind, id: Timestamp, key: Uint8Array): SystemName {
  return `${cellPrefix(kind, id)}${keyText(key)}`
}

export function cellPrefix(kind: CellKind, id: Timestamp): SystemName {
  return `${kind}/${idText(id)}`
}

export function cellEnd(kind: CellKind, id: Timestamp): SystemName {
  return cellPrefix(kind, id + 1)
}

export function keyOfCell(kind: CellKind, name: SystemName): Buffer {
  return Buffer.from(name.slice(kind.length + 1 + ID_BYTES), 'latin1')
}

export function idOfCell(kind: CellKind, name: SystemName): Timestamp | undefined {
  return idIn(name, kind.length + 1)
}
