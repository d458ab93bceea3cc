import { keyText } from '../../src/bytes/key-text.js'
import { decodeKey, decodeKeyTs } from '../../src/percolator/codec/key.js'
import { decodeLock } from '../../src/percolator/codec/lock.js'
import { decodeWrite } from '../../src/percolator/codec/write.js'
import { isData } from '../../src/percolator/write.js'
import { unseal } from '../../src/store/leveldb/engine/checksum.js'
import { CF_DEFAULT, CF_LOCK, CF_NEWEST, CF_WRITE } from '../../src/store/leveldb/records/keyspace.js'
import { decodeNewest } from '../../src/store/leveldb/records/newest-record.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Ledger } from './ledger.js'
import type { SortedMap } from './sorted-map.js'
import type { Violations } from './violations.js'

function* records(state: SortedMap, cf: number): Generator<[key: Buffer, value: Buffer]> {
  for (const key of state.keys(String.fromCharCode(cf), String.fromCharCode(cf + 1)))
    yield recordOf(Buffer.from(key, 'latin1'), state.get(key) as Buffer)
}

function recordOf(key: Buffer, sealed: Buffer): [key: Buffer, value: Buffer] {
  return [key, unseal(key, sealed)]
}

/** Whether the column families agree with each other: each write and lock has its value, and CF_NEWEST its write. */
export function checkColumnFamilies(state: SortedMap, violations: Violations): void {
  const values = new Set<string>()
  for (const [key] of records(state, CF_DEFAULT)) values.add(`${keyText(decodeKey(key))} ${decodeKeyTs(key)}`)
  const newest = new Map<string, { readonly commitTs: Timestamp; readonly startTs: Timestamp }>()
  const needed = new Set<string>()
  for (const [recordKey, bytes] of records(state, CF_WRITE)) {
    const key = keyText(decodeKey(recordKey))
    const write = decodeWrite(bytes, decodeKeyTs(recordKey))
    if (isData(write) && !newest.has(key)) newest.set(key, write)
    if (write.type === 'put' && write.shortValue === undefined) needed.add(`${key} ${write.startTs}`)
  }
  for (const [lockKey, bytes] of records(state, CF_LOCK)) {
    const lock = decodeLock(bytes)
    if (lock.type === 'put' && lock.shortValue === undefined)
      needed.add(`${keyText(decodeKey(lockKey))} ${lock.startTs}`)
  }
  for (const value of needed) if (!values.has(value)) violations.add('no value', `${value} is not in CF_DEFAULT`)
  for (const value of values) if (!needed.has(value)) violations.add('orphan', `${value} in CF_DEFAULT is nobody's`)
  for (const [recordKey, bytes] of records(state, CF_NEWEST)) {
    const key = keyText(decodeKey(recordKey))
    const { commitTs, startTs } = decodeNewest(bytes)
    const write = newest.get(key)
    if (write?.commitTs !== commitTs || write.startTs !== startTs)
      violations.add('newest', `CF_NEWEST has ${key} at ${commitTs}, CF_WRITE at ${write?.commitTs}`)
    newest.delete(key)
  }
  for (const [key, { commitTs }] of newest) violations.add('newest', `CF_NEWEST lacks ${key} at ${commitTs}`)
}

/** Whether nothing is gone that a read from the safe point on needs, and nothing has come from elsewhere. */
export function checkCollected(state: SortedMap, ledger: Ledger, safePoint: Timestamp, violations: Violations): void {
  const stored = new Map<string, Set<Timestamp>>()
  for (const [recordKey, bytes] of records(state, CF_WRITE)) {
    const key = keyText(decodeKey(recordKey))
    const commitTs = decodeKeyTs(recordKey)
    if (!isData(decodeWrite(bytes, commitTs))) continue
    const known = stored.get(key) ?? new Set()
    stored.set(key, known.add(commitTs))
    if (!ledger.of(key).some((record) => record.commitTs === commitTs))
      violations.add('unknown', `nobody committed ${key} at ${commitTs}`)
  }
  for (const key of ledger.keys) {
    const data = ledger.of(key).filter(({ type }) => type !== 'lock')
    const atSafePoint = data.findLast(({ commitTs }) => commitTs <= safePoint)
    for (const record of data) {
      const isNeeded = record.commitTs > safePoint || (record === atSafePoint && record.type === 'put')
      if (isNeeded && !stored.get(key)?.has(record.commitTs))
        violations.add('collected', `${key} at ${record.commitTs} is gone; the safe point is ${safePoint}`)
    }
  }
}

export function lockedKeys(state: SortedMap): string[] {
  return [...records(state, CF_LOCK)].map(([key]) => keyText(decodeKey(key)))
}
