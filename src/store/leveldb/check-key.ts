import { encodeWrite } from '../../percolator/codec/write.js'
import { printKey } from '../../percolator/errors.js'
import type { Lock } from '../../percolator/lock.js'
import type { Timestamp } from '../../percolator/timestamp.js'
import { isData, type WriteRecord } from '../../percolator/write.js'
import type { EngineOp } from './engine.js'
import { aheadKey, lockKey, newestKey, valueKey, writeKey } from './keyspace.js'
import { encodeNewest } from './newest-record.js'

/** All that is stored of one key, decoded. */
export interface KeyRecords {
  readonly key: Uint8Array
  readonly lock: Lock | undefined
  /** Newest first. */
  readonly writes: readonly WriteRecord[]
  /** The start_ts of the values in CF_DEFAULT. */
  readonly valuesAt: readonly Timestamp[]
  /** As it is in CF_NEWEST. */
  readonly newest: Buffer | undefined
  readonly aheadAt: readonly Timestamp[]
}

export type ProblemKind =
  | 'damaged_record'
  | 'unknown_record'
  | 'bad_meta'
  | 'bad_timestamps'
  | 'contradiction'
  | 'missing_value'
  | 'orphan_value'
  | 'bad_lock'
  | 'wrong_newest'
  | 'above_mark'

/** What is wrong, and what puts it right. */
export interface Problem {
  readonly kind: ProblemKind
  /** The user's key, where it is about one. */
  readonly key?: Uint8Array
  readonly ts?: Timestamp
  /** One line for people, with the key. */
  readonly message: string
  /** Something that a client wrote can't be read any more. */
  readonly isLoss: boolean
  /** Applied in the order of the problems, they leave nothing to complain about. */
  readonly ops: readonly EngineOp[]
}

/**
 * What contradicts itself in the records of one key. Each problem takes those before it as put right.
 * @param mark the oracle's: records above it have to be in the list of those ahead.
 */
export function checkKey(records: KeyRecords, mark: Timestamp): Problem[] {
  const { key, lock, valuesAt } = records
  const name = printKey(key)
  const problems: Problem[] = []
  const found = (
    kind: ProblemKind,
    ts: Timestamp,
    message: string,
    isLoss: boolean,
    ops: readonly EngineOp[],
  ): void => {
    problems.push({ kind, key, ts, message, isLoss, ops })
  }
  const values = new Set(valuesAt)
  const needs = ({ type, shortValue }: WriteRecord | Lock): boolean => type === 'put' && shortValue === undefined

  const committed = new Map<Timestamp, WriteRecord>()
  for (const write of records.writes) if (write.type !== 'rollback') committed.set(write.startTs, write)
  const writes = records.writes.filter((write) => {
    const { type, startTs, commitTs } = write
    const removed = (kind: ProblemKind, what: string, isLoss = isData(write)): boolean => {
      const message = `the ${type} record of ${name} at ${commitTs} ${what}`
      found(kind, commitTs, message, isLoss, [{ type: 'del', key: writeKey(key, commitTs) }])
      return false
    }
    if (type === 'rollback' ? startTs !== commitTs : startTs >= commitTs)
      return removed('bad_timestamps', `says that its transaction began at ${startTs}`)
    const rival = committed.get(startTs)
    // The older of two commits, and a rollback beside a commit: a lock that came back from the dead may have led to them.
    if (rival !== undefined && rival !== write && type === 'rollback')
      return removed('contradiction', `stands beside a commit of its transaction at ${rival.commitTs}`)
    if (needs(write) && !values.has(startTs))
      return removed('missing_value', `has lost its value, written at ${startTs}`)
    return true
  })

  let heldAt = lock !== undefined && needs(lock) ? lock.startTs : undefined
  if (lock !== undefined) {
    const outcome = writes.find(({ startTs, type }) => startTs === lock.startTs && type !== 'rollback')
    const undone = writes.some(({ startTs, type }) => startTs === lock.startTs && type === 'rollback')
    const removed = (kind: ProblemKind, what: string, isLoss: boolean): void => {
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
  for (const startTs of valuesAt) {
    if (needed.has(startTs) || startTs === heldAt) continue
    const message = `the value of ${name} written at ${startTs} belongs to no record and no lock`
    found('orphan_value', startTs, message, false, [{ type: 'del', key: valueKey(key, startTs) }])
  }

  const newest = writes.find(isData)
  const expected = newest && encodeNewest(newest.commitTs, encodeWrite(newest))
  if (expected === undefined ? records.newest !== undefined : records.newest?.equals(expected) !== true) {
    const ops: EngineOp[] = [
      expected === undefined
        ? { type: 'del', key: newestKey(key) }
        : { type: 'put', key: newestKey(key), value: expected },
    ]
    const ts = newest?.commitTs ?? 0
    const what = newest === undefined ? 'should not be there' : `is not its ${newest.type} record at ${ts}`
    found('wrong_newest', ts, `the newest record of ${name} ${what}`, false, ops)
  }

  const ahead = new Set(records.aheadAt)
  for (const { commitTs, type } of writes) {
    if (commitTs <= mark || ahead.has(commitTs)) continue
    const message = `the ${type} record of ${name} at ${commitTs} is above the oracle's mark`
    found('above_mark', commitTs, message, false, [
      { type: 'put', key: aheadKey(key, commitTs), value: Buffer.alloc(0) },
    ])
  }
  return problems
}
