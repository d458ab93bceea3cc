import { printKey } from '../../../errors/print-key.js'
import { CLOCK_MS_MAX } from '../../../limits.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { encodeWrite } from '../../../percolator/codec/write.js'
import type { Lock } from '../../../percolator/lock.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import { type Timestamp, timestampFromMs } from '../../../timestamp.js'
import type { EngineOp } from '../engine/engine.js'
import { aheadKey, CF_LOCK, CF_NEWEST, CF_WRITE, lockKey, newestKey, valueKey, writeKey } from '../records/keyspace.js'
import { decodeNewest, encodeNewest } from '../records/newest-record.js'
import { recordName } from '../records/record-name.js'

export interface KeyRecords {
  readonly key: Uint8Array
  readonly lock: Lock | undefined
  readonly writes: readonly WriteRecord[]
  /** start_ts of each value in CF_DEFAULT. */
  readonly valuesAt: readonly Timestamp[]
  readonly newest: Buffer | undefined
  readonly aheadAt: readonly Timestamp[]
  /** Records that fail their checksums or do not decode, which the other fields leave out. */
  readonly damaged?: readonly DamagedRecord[]
}

export interface DamagedRecord {
  readonly stored: Buffer
  readonly why: string
}

/** Column families in which damaged files lost records of a key. Older, deleted records may be visible again there. */
export interface Suspects {
  readonly lock: boolean
  readonly newest: boolean
  readonly writes: boolean
}
const NOT_SUSPECT: Suspects = { lock: false, newest: false, writes: false }

type FindingKind =
  | 'damaged_record'
  | 'unknown_record'
  | 'bad_meta'
  | 'bad_timestamps'
  | 'contradiction'
  | 'stale_write'
  | 'missing_write'
  | 'missing_value'
  | 'orphan_value'
  | 'bad_lock'
  | 'wrong_newest'
  | 'missing_change'
  | 'missing_expiry'
  | 'missing_attachment'
  | 'lost_version'
  | 'above_mark'

export interface Finding {
  readonly kind: FindingKind
  readonly key?: Uint8Array
  readonly ts?: Timestamp
  readonly message: string
  /** A client's data can no longer be read. */
  readonly isLoss: boolean
  /** Applied in the order of the findings, they leave no contradiction. */
  readonly ops: readonly EngineOp[]
}

/** Largest timestamp of an oracle. Only a client can have chosen a higher one. */
export const MARK_MAX: Timestamp = timestampFromMs(CLOCK_MS_MAX) - 1

/**
 * Finds contradictions in the records of one key. Each finding assumes that the ones before it are mended.
 *
 * CF_WRITE and CF_NEWEST both hold the newest Put or Delete. When they differ, the one whose files are intact is right. When that
 * does not decide, the newer record is: records get lost more easily than deleted ones come back.
 * @param mark of the oracle. Records above it must be in the list of those ahead.
 */
export function checkKey(records: KeyRecords, mark: Timestamp, suspects = NOT_SUSPECT): Finding[] {
  const { key, lock, valuesAt, damaged = [] } = records
  const name = printKey(key)
  const findings: Finding[] = []
  const found = (
    kind: FindingKind,
    ts: Timestamp,
    message: string,
    isLoss: boolean,
    ops: readonly EngineOp[],
  ): void => {
    findings.push({ kind, key, ts, message, isLoss, ops })
  }
  const isDamaged = (stored: Buffer): boolean => damaged.some((one) => one.stored.equals(stored))
  const values = new Set(valuesAt)
  const needs = ({ type, shortValue }: WriteRecord | Lock): boolean => type === 'put' && shortValue === undefined
  const hasLostValue = (record: WriteRecord | Lock): boolean => needs(record) && !values.has(record.startTs)

  const copy = newestIn(records.newest)
  const isCopyUnreadable = records.newest !== undefined && copy === undefined
  const isCopySuspect = suspects.newest || isCopyUnreadable || isDamaged(newestKey(key))
  const isCopyAlone = suspects.writes && !isCopySuspect

  const committed = new Map<Timestamp, WriteRecord>()
  for (const write of records.writes) if (write.type !== 'rollback') committed.set(write.startTs, write)
  let writes = records.writes.filter((write) => {
    const { type, startTs, commitTs } = write
    const removed = (kind: FindingKind, what: string, isLoss = isData(write)): boolean => {
      const message = `the ${type} record of ${name} at ${commitTs} ${what}`
      found(kind, commitTs, message, isLoss, [{ type: 'del', key: writeKey(key, commitTs) }])
      return false
    }
    if (type === 'rollback' ? startTs !== commitTs : startTs >= commitTs)
      return removed('bad_timestamps', `says that its transaction began at ${startTs}`)
    const rival = committed.get(startTs)
    // The older of two commits, or a rollback beside a commit. A deleted lock that came back may have led to them.
    if (rival !== undefined && rival !== write && type === 'rollback')
      return removed('contradiction', `stands beside a commit of its transaction at ${rival.commitTs}`)
    if (isCopyAlone && isData(write) && commitTs > (copy?.commitTs ?? 0))
      return removed('stale_write', 'had been deleted and is back, since a damaged file lost the deletion', false)
    if (hasLostValue(write)) return removed('missing_value', `has lost its value, written at ${startTs}`)
    return true
  })

  const isCopyStale =
    isCopySuspect && !suspects.writes && copy !== undefined && !isDamaged(writeKey(key, copy.commitTs))
  let restored: Buffer | undefined
  const isThere = records.writes.some((write) => isData(write) && write.commitTs === copy?.commitTs)
  if (copy !== undefined && !isCopyStale && !isThere && copy.commitTs > (writes.find(isData)?.commitTs ?? 0)) {
    const { type, commitTs, startTs } = copy
    const message = `the ${type} record of ${name} at ${commitTs}`
    if (hasLostValue(copy))
      found('missing_value', commitTs, `${message} has lost its value, written at ${startTs}`, true, [])
    else {
      restored = writeKey(key, commitTs)
      const put: EngineOp = { type: 'put', key: restored, value: encodeWrite(copy) }
      const what = isDamaged(restored)
        ? 'fails its checksum, and its copy does not'
        : 'is missing, but its copy is there'
      found('missing_write', commitTs, `${message} ${what}`, false, [put])
      writes = [copy, ...writes.filter((write) => write.commitTs !== commitTs)].sort((a, b) => b.commitTs - a.commitTs)
    }
  }
  // Other records have a copy, or are reported as having lost their value.
  const isLost = ({ stored }: DamagedRecord): boolean =>
    stored[0] === CF_LOCK || (stored[0] === CF_WRITE && restored?.equals(stored) !== true)
  for (const record of damaged) {
    const { stored, why } = record
    if (stored[0] === CF_NEWEST || restored?.equals(stored)) continue
    found('damaged_record', 0, `${recordName(stored)} ${why}`, isLost(record), [{ type: 'del', key: stored }])
  }

  let heldAt = lock !== undefined && needs(lock) ? lock.startTs : undefined
  if (lock !== undefined) {
    const outcome = writes.find(({ startTs, type }) => startTs === lock.startTs && type !== 'rollback')
    const undone = writes.some(({ startTs, type }) => startTs === lock.startTs && type === 'rollback')
    const removed = (kind: FindingKind, what: string, isLoss: boolean): void => {
      heldAt = undefined
      const message = `the lock of ${name} by the transaction at ${lock.startTs} ${what}`
      found(kind, lock.startTs, message, isLoss, [{ type: 'del', key: lockKey(key) }])
    }
    if (lock.type === 'pessimistic') removed('bad_lock', 'is a pessimistic one, which is never stored', false)
    else if (outcome !== undefined)
      removed('bad_lock', `stands although that is committed at ${outcome.commitTs}`, false)
    else if (undone) removed('bad_lock', 'stands although that is rolled back', false)
    else if (heldAt !== undefined && !values.has(heldAt)) removed('missing_value', 'has lost its value', true)
  }

  const needed = new Set(writes.filter(needs).map(({ startTs }) => startTs))
  const mayHaveLostOwner = suspects.writes || suspects.lock || damaged.some(isLost)
  for (const startTs of valuesAt) {
    if (needed.has(startTs) || startTs === heldAt) continue
    const message = `the value of ${name} written at ${startTs} belongs to no record and no lock`
    found('orphan_value', startTs, message, mayHaveLostOwner, [{ type: 'del', key: valueKey(key, startTs) }])
  }

  const newest = writes.find(isData)
  const expected = newest && encodeNewest(newest.commitTs, encodeWrite(newest))
  const broken = damaged.find(({ stored }) => stored[0] === CF_NEWEST)
  if (broken || (expected === undefined ? records.newest !== undefined : records.newest?.equals(expected) !== true)) {
    const ops: EngineOp[] = [
      expected === undefined
        ? { type: 'del', key: newestKey(key) }
        : { type: 'put', key: newestKey(key), value: expected },
    ]
    const ts = newest?.commitTs ?? 0
    const what = newest === undefined ? 'should not be there' : `is not its ${newest.type} record at ${ts}`
    if (broken) found('damaged_record', ts, `${recordName(broken.stored)} ${broken.why}`, false, ops)
    else found('wrong_newest', ts, `the newest record of ${name} ${what}`, false, ops)
  }

  const ahead = new Set(records.aheadAt)
  for (const { commitTs, type } of writes) {
    if (commitTs <= mark || ahead.has(commitTs)) continue
    const message = `the ${type} record of ${name} at ${commitTs} is above the oracle's mark`
    found('above_mark', commitTs, message, false, [
      { type: 'put', key: aheadKey(key, commitTs), value: Buffer.alloc(0) },
    ])
  }
  return findings
}

/** @returns undefined unless the record is of a Put or Delete. */
function newestIn(stored: Buffer | undefined): WriteRecord | undefined {
  if (stored === undefined) return undefined
  try {
    const write = decodeNewest(stored)
    return isData(write) && write.startTs < write.commitTs ? write : undefined
  } catch (error) {
    if (error instanceof CorruptRecord) return undefined
    throw error
  }
}
