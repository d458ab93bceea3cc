import { isReserved, RESERVED_PREFIX } from '../../../bytes/reserved-keys.js'
import { printKey } from '../../../errors/print-key.js'
import { decodeKey, decodeKeyTs, isOfServer } from '../../../percolator/codec/key.js'
import { reservedName } from '../../../percolator/codec/reserved-key.js'
import { readTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import { idOfCell, keyOfCell } from '../../cell-names.js'
import type { SystemKind, SystemName } from '../../system-records.js'
import {
  AHEAD,
  CF_DEFAULT,
  CF_EXPIRY,
  CF_LOCK,
  CF_LOG,
  CF_NEWEST,
  CF_SYSTEM,
  CF_WRITE,
  decodeExpiryKey,
  firstCommitTs,
  META,
  nameOfSystem,
} from './keyspace.js'
import { isCellKind, kindOf, SYSTEM_KINDS } from './system-kinds.js'

const TS_BYTES = 8

/** Describes a stored record for messages: `the write record of "a" at 7`. */
export function recordName(stored: Buffer): string {
  try {
    switch (stored[0]) {
      case CF_DEFAULT:
        return `the value of ${nameOfKey(decodeKey(stored))} written at ${decodeKeyTs(stored)}`
      case CF_LOCK:
        return `the lock of ${nameOfKey(decodeKey(stored))}`
      case CF_EXPIRY: {
        const { expiryTs, key, commitTs } = decodeExpiryKey(stored)
        return `the expiry at ${expiryTs} of ${nameOfKey(key)} written at ${commitTs}`
      }
      case CF_LOG:
        return `the record of changes from ${firstCommitTs(stored)} on`
      case CF_NEWEST:
        return `the newest record of ${nameOfKey(decodeKey(stored))}`
      case CF_WRITE:
        return `the write record of ${nameOfKey(decodeKey(stored))} at ${decodeKeyTs(stored)}`
      case AHEAD:
        return `the ahead record of ${nameOfKey(decodeKey(stored))} at ${decodeKeyTs(stored)}`
      case META:
        return `the meta record ${printKey(stored.subarray(1))}`
      case CF_SYSTEM:
        return systemRecordName(stored)
    }
  } catch {}
  return `the record under the damaged key 0x${stored.toString('hex')}`
}

function nameOfKey(key: Uint8Array): string {
  return isReserved(key) ? `the server's row ${printKey(reservedName(key))}` : printKey(key)
}

function systemRecordName(stored: Buffer): string {
  const name = nameOfSystem(stored)
  const kind = kindOf(name)
  if (kind === undefined) return `the system record ${printKey(stored.subarray(1))}`
  const { one } = SYSTEM_KINDS[kind]
  const cell = cellOf(kind, name)
  if (cell !== undefined) return `the ${one} of ${printKey(cell.key)} for the observer ${cell.id}`
  return `the ${one} ${printKey(stored.subarray(1 + `${kind}/`.length))}`
}

/** @returns undefined for records of other kinds, and for names that are too short. */
function cellOf(kind: SystemKind, name: SystemName): { readonly id: Timestamp; readonly key: Buffer } | undefined {
  const id = isCellKind(kind) ? idOfCell(kind, name) : undefined
  return isCellKind(kind) && id !== undefined ? { id, key: keyOfCell(kind, name) } : undefined
}

/** Describes a record without its key, which `/readyz` and the log must not show: `one of the write records`. */
export function recordKind(stored: Buffer): string {
  const family = FAMILY_NAMES[stored[0] ?? 0]
  return family === undefined ? 'a record under a damaged key' : `one of the ${family} records`
}

const FAMILY_NAMES: Readonly<Record<number, string>> = {
  [AHEAD]: 'ahead',
  [CF_DEFAULT]: 'value',
  [CF_EXPIRY]: 'expiry',
  [CF_LOCK]: 'lock',
  [CF_LOG]: 'change',
  [META]: 'meta',
  [CF_NEWEST]: 'newest',
  [CF_WRITE]: 'write',
  [CF_SYSTEM]: 'system',
}

/** Describes a bound between blocks, which may be a part of a key: `write records near "a"`. */
export function placeName(bound: Buffer): string {
  const family = FAMILY_NAMES[bound[0] ?? 0]
  if (family === undefined) return `0x${bound.toString('hex')}`
  if (family === 'system') {
    const name = nameOfSystem(bound)
    const kind = kindOf(name)
    const cell = kind && cellOf(kind, name)
    if (kind !== undefined && cell !== undefined)
      return `${SYSTEM_KINDS[kind].all} near ${printKey(cell.key)} for the observer ${cell.id}`
  }
  if (family === 'change' || family === 'expiry') return placeOfTs(bound, family)
  if (family === 'meta' || family === 'system') return `${family} records near ${printKey(bound.subarray(1))}`
  const parts: Buffer[] = []
  for (let at = 1; at < bound.length; at += 9) {
    const marker = bound[at + 8] ?? 0xff
    if (at === 1 && isOfServer(bound)) {
      parts.push(Buffer.from(RESERVED_PREFIX))
      continue
    }
    parts.push(bound.subarray(at, Math.min(bound.length, at + (marker === 0xff ? 8 : 8 - (0xff - marker)))))
    if (marker !== 0xff) break
  }
  return `${family} records near ${printKey(Buffer.concat(parts))}`
}

function placeOfTs(bound: Buffer, family: 'change' | 'expiry'): string {
  try {
    const padded = Buffer.concat([bound, Buffer.alloc(TS_BYTES)])
    return `${family} records near ${readTs(padded, 1, family)}`
  } catch {
    return `${family} records`
  }
}
