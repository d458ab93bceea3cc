import { keyText } from '../../src/bytes/key-text.js'
import type { PersistentMap } from '../../src/bytes/persistent-map.js'
import { isReserved } from '../../src/bytes/reserved-keys.js'
import { decodeChanges } from '../../src/changes/rules/codec/change-log.js'
import { type Change, compareChanges } from '../../src/percolator/change.js'
import { isAttachedKey, keyOfAttached } from '../../src/percolator/codec/attached-key.js'
import { decodeKey, decodeKeyTs } from '../../src/percolator/codec/key.js'
import { decodeLock } from '../../src/percolator/codec/lock.js'
import { asInteger, unpackRecord } from '../../src/percolator/codec/record.js'
import { decodeWrite } from '../../src/percolator/codec/write.js'
import { expiryTs, hasExpired, isData } from '../../src/percolator/write.js'
import { unseal } from '../../src/store/leveldb/engine/checksum.js'
import {
  CF_DEFAULT,
  CF_EXPIRY,
  CF_LOCK,
  CF_LOG,
  CF_NEWEST,
  CF_SYSTEM,
  CF_WRITE,
  expiryKey,
  firstCommitTs,
  META_LOG_START,
  META_SAFE_POINT,
  nameOfSystem,
} from '../../src/store/leveldb/records/keyspace.js'
import { decodeNewest } from '../../src/store/leveldb/records/newest-record.js'
import { RECORD_SPAN } from '../../src/store/leveldb/rows/change-records.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Ledger } from './ledger.js'
import type { Violations } from './violations.js'

function* records(state: PersistentMap<Buffer>, cf: number): Generator<[key: Buffer, value: Buffer]> {
  const [from, to] = [String.fromCharCode(cf), String.fromCharCode(cf + 1)]
  for (const [key, value] of state.range(from, to, Number.POSITIVE_INFINITY))
    yield recordOf(Buffer.from(key, 'latin1'), value)
}

function recordOf(key: Buffer, sealed: Buffer): [key: Buffer, value: Buffer] {
  return [key, unseal(key, sealed)]
}

/** Whether the column families agree with each other: each write and lock has its value, and CF_NEWEST its write. */
export function checkColumnFamilies(state: PersistentMap<Buffer>, violations: Violations): void {
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

/**
 * Whether the log of changes and the Puts and Deletes of CF_WRITE name each other above the bound of the log, byte for byte. Of a change
 * that a delete_range above it took nothing is left.
 */
export function checkChangeLog(state: PersistentMap<Buffer>, violations: Violations): void {
  const bound = Math.max(metaNumber(state, META_SAFE_POINT), metaNumber(state, META_LOG_START))
  const logged = new Set<string>()
  const removals: (Change & { readonly type: 'delete_range' })[] = []
  const changes: Change[] = []
  for (const [stored, bytes] of records(state, CF_LOG)) {
    const found = decodeChanges(bytes)
    const [first, last] = [found[0] as Change, found.at(-1) as Change]
    if (first.commitTs !== firstCommitTs(stored))
      violations.add('log', `a record at ${firstCommitTs(stored)} begins at ${first.commitTs}`)
    if (last.commitTs - first.commitTs > RECORD_SPAN)
      violations.add('log', `a record spans ${first.commitTs} to ${last.commitTs}`)
    found.forEach((change, i) => {
      const before = found[i - 1]
      if (before !== undefined && compareChanges(before, change) > 0)
        violations.add('log', `${nameOf(before)} stands before ${nameOf(change)}`)
      if (change.type === 'delete_range') removals.push(change)
      else if (change.commitTs > bound) changes.push(change)
    })
  }
  const written = new Set<string>()
  const taken = new Set<string>()
  for (const [stored, bytes] of records(state, CF_WRITE)) {
    const write = decodeWrite(bytes, decodeKeyTs(stored))
    const { commitTs, startTs } = write
    taken.add(`${keyText(decodeKey(stored))} ${commitTs}`)
    if (!isData(write) || commitTs <= bound || isReserved(decodeKey(stored))) continue
    written.add(nameOf({ type: write.type === 'put' ? 'put' : 'delete', key: decodeKey(stored), commitTs, startTs }))
  }
  for (const change of changes) {
    const name = nameOf(change)
    logged.add(name)
    const isGone = removals.some(
      ({ key, end, commitTs }) =>
        commitTs > change.commitTs && Buffer.compare(key, change.key) <= 0 && Buffer.compare(change.key, end) < 0,
    )
    if (!written.has(name) && !isGone && !taken.has(`${keyText(change.key)} ${change.commitTs}`))
      violations.add('log', `${name} is in CF_LOG, and not in CF_WRITE`)
  }
  for (const name of written) if (!logged.has(name)) violations.add('log', `${name} is in CF_WRITE, and not in CF_LOG`)
}

/** Whether each version that expires above the safe point has its entry in CF_EXPIRY, and all entries are intact. */
export function checkExpiryEntries(state: PersistentMap<Buffer>, violations: Violations): void {
  const safePoint = metaNumber(state, META_SAFE_POINT)
  const entries = new Set<string>()
  for (const [stored] of records(state, CF_EXPIRY)) entries.add(stored.toString('latin1'))
  for (const [stored, bytes] of records(state, CF_WRITE)) {
    const write = decodeWrite(bytes, decodeKeyTs(stored))
    if (write.type !== 'put' || write.expireTs === 0 || expiryTs(write) <= safePoint) continue
    const key = decodeKey(stored)
    if (!entries.has(expiryKey(expiryTs(write), key, write.commitTs).toString('latin1')))
      violations.add(
        'expiry',
        `CF_EXPIRY lacks ${keyText(key)} at ${write.commitTs}, which expires at ${expiryTs(write)}`,
      )
  }
}

const nameOf = ({ type, key, commitTs, startTs }: Change): string =>
  `the ${type} of ${keyText(key)} at ${commitTs} by ${startTs}`

function metaNumber(state: PersistentMap<Buffer>, stored: Buffer): Timestamp {
  const sealed = state.get(stored.toString('latin1'))
  return sealed === undefined ? 0 : asInteger(unpackRecord(unseal(stored, sealed), 'meta', 1)[0], 'meta')
}

/** Whether nothing is gone that a read from the safe point on needs, and nothing has come from elsewhere. */
export function checkCollected(
  state: PersistentMap<Buffer>,
  ledger: Ledger,
  safePoint: Timestamp,
  violations: Violations,
): void {
  const stored = new Map<string, Set<Timestamp>>()
  for (const [recordKey, bytes] of records(state, CF_WRITE)) {
    if (isReserved(decodeKey(recordKey))) continue
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
      if (ledger.changes.isRemoved(key, record.commitTs)) continue
      const isVisible = record.type === 'put' && !hasExpired(record.expireTs, safePoint)
      const isNeeded = record.commitTs > safePoint || (record === atSafePoint && isVisible)
      if (isNeeded && !stored.get(key)?.has(record.commitTs))
        violations.add('collected', `${key} at ${record.commitTs} is gone; the safe point is ${safePoint}`)
    }
  }
}

export function lockedKeys(state: PersistentMap<Buffer>): string[] {
  return [...records(state, CF_LOCK)].map(([key]) => keyText(decodeKey(key)))
}

/** Whether the rows of attached keys went with their leases, of which none is left. */
export function checkNoneAttached(state: PersistentMap<Buffer>, violations: Violations): void {
  for (const [key] of records(state, CF_SYSTEM)) {
    const name = nameOfSystem(key)
    if (name.startsWith('lease/')) violations.add('attached', `the record ${JSON.stringify(name)} is left`)
  }
  for (const [stored, bytes] of records(state, CF_NEWEST)) {
    const key = decodeKey(stored)
    if (isAttachedKey(key) && decodeNewest(bytes).type === 'put')
      violations.add('attached', `the row of ${keyText(keyOfAttached(key))} is left`)
  }
}
