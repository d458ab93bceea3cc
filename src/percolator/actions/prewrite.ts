import { invalid, isKvError, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { PessimisticAction, PrewriteAnswer, PrewriteMutation, PrewriteRequest } from '../api.js'
import {
  alreadyExists,
  keyLocked,
  startTsTaken,
  type WriteConflictReason,
  withEntries,
  writeConflict,
} from '../errors.js'
import type { Lock } from '../lock.js'
import { lockInfo } from '../lock-info.js'
import {
  done,
  type HistoryDepth,
  type Mutation,
  type Outcome,
  type RowView,
  recordsToPass,
  refused,
  rollbackOf,
  sameKey,
  txnRecord,
} from '../row.js'
import { attachedFence, isData, isVisible, type WriteRecord } from '../write.js'

export interface PrewriteContext {
  readonly maxTs: Timestamp
  /** Values up to this many bytes are stored in the lock and the write record. */
  readonly shortValueBytesMax: number
  readonly clockTs?: Timestamp
  /** Feeds have passed this timestamp, so no new lock may commit at or below it; 0: none. */
  readonly passedTs?: Timestamp
}

const NO_TIMESTAMPS: readonly Timestamp[] = []

type CommitKind = 'two_pc' | 'async' | 'one_pc'

type KeyStatus =
  | { readonly kind: 'free'; readonly ttlMs: number; readonly minCommitTs: Timestamp; readonly forUpdateTs: Timestamp }
  | { readonly kind: 'locked'; readonly lock: Lock }

interface ToLock {
  readonly row: RowView
  readonly mutation: PrewriteMutation
  readonly status: KeyStatus & { readonly kind: 'free' }
}

/** A plain put or delete only asks whether another transaction wrote since `startTs`. */
export function prewriteDepth(mutation: PrewriteMutation): HistoryDepth {
  const { op, assertion, keepsLease = false, keyAt } = mutation
  if (keyAt !== undefined) return 'none' // Nobody else can have written the key.
  const needsValue = op === 'insert' || op === 'check_not_exists' || assertion !== undefined || keepsLease
  return needsValue ? 'data' : 'since'
}

/**
 * Decides the prewrite of all keys of a request: all locks, or (1PC) all write records at once, or none of either.
 *
 * Locks of other transactions are collected; any other failure ends the request at once. Assertions are reported last, because a
 * conflict explains a failed assertion better. A repeat after the commit locks nothing and answers the real commit timestamp.
 * Async commit and 1PC fall back to plain two-phase commit when a key would have to commit above `maxCommitTs`.
 *
 * The answer describes the request's locks after the mutations are written, including locks of earlier requests: `minCommitTs`
 * is the highest one of them when all are async, because then others may commit the transaction by them, and absent otherwise.
 *
 * @param rows `rows[i]` is the row of `mutations[i]`, as deep as `prewriteDepth` says.
 * @returns Errors: `key_locked`, `write_conflict`, `already_exists`, `assertion_failed`, `pessimistic_lock_not_found`,
 *   `invalid_argument` (one transaction mixing kinds of lock); the error's `errors` has one entry per failed key.
 * @see TiKV `commands/prewrite.rs` (`Prewriter::prewrite`), `actions/prewrite.rs`; the paper, section 2.2, figure 6.
 */
export function prewrite(
  rows: readonly RowView[],
  request: PrewriteRequest,
  context: PrewriteContext,
): Outcome<PrewriteAnswer> {
  const before = checkBefore(rows, request)
  if (!before.ok) return before
  // A repeat after the commit has succeeded, whatever its checks would find now.
  if (before.value !== undefined) return done(answerCommitted(request, before.value))

  // The calculated commit timestamp is the same for every key: nothing reads between two keys of one decision.
  const calculated = calculatedCommitTs(request, context)
  const locksMet: KvError[] = []
  let failedAssertion: KvError | undefined
  const toLock: ToLock[] = []
  const locked: Lock[] = []

  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as RowView
    const mutation = request.mutations[i] as PrewriteMutation
    const writes = recordsToPass(row.writes, request.startTs, context.clockTs)
    const seen = writes === row.writes ? row : { ...row, writes }
    const checked = checkKey(seen, mutation, request, request.pessimisticActions?.[i], request.forUpdateTsMax?.[i])
    if (!checked.ok) {
      const { error } = checked
      if (isKvError(error, 'key_locked')) locksMet.push(error)
      else if (isKvError(error, 'assertion_failed')) failedAssertion ??= error
      else return refused(withEntries([error]))
      continue
    }
    const status = checked.value
    if (status.kind === 'locked') locked.push(status.lock)
    else if (mutation.op !== 'check_not_exists') toLock.push({ row, mutation, status })
  }
  if (failedAssertion !== undefined) return refused(withEntries([failedAssertion]))
  if (locksMet.length > 0) return refused(withEntries(locksMet))

  // Commit effects are written at the commit_ts too, even without rows.
  const leastOfEffects = request.commitEffects === undefined ? 0 : calculated
  const leastOfNew = toLock.reduce(
    (least, { status }) => Math.max(least, leastCommitTs(calculated, status)),
    leastOfEffects,
  )
  const kind = commitKind(request, toLock.length, locked, leastOfNew)
  const isNothingWritten = toLock.length === 0 && locked.length === 0 && request.commitEffects === undefined
  const minCommitTs = isNothingWritten
    ? commitTsOfNothing(request)
    : locked.reduce((highest, lock) => Math.max(highest, lock.minCommitTs), leastOfNew)
  if (kind !== 'two_pc' && minCommitTs >= TIMESTAMP_MAX)
    return refused(invalid('start_ts', `there is no commit_ts above ${minCommitTs - 1}: the timestamps are too large`))

  const mutations: Mutation[] = []
  if (kind === 'one_pc') {
    for (const { row, mutation } of toLock) mutations.push(...writeNow(row, mutation, request, minCommitTs, context))
    return done({ onePcCommitTs: minCommitTs }, mutations)
  }
  // Only a lock at this start_ts keeps such a request from its one phase, and it has none of its own.
  const stamped = toLock.find(({ mutation }) => mutation.keyAt !== undefined)
  if (stamped !== undefined) return refused(withEntries([startTsTaken(request.primary, request)]))
  for (const { row, mutation, status } of toLock) {
    const keyMinCommitTs =
      kind === 'async' ? leastCommitTs(calculated, status) : leastPlainCommitTs(request, status, context)
    mutations.push(...lockKey(row, mutation, request, { ...status, minCommitTs: keyMinCommitTs }, kind, context))
  }
  return done(kind === 'async' ? { minCommitTs } : {}, mutations)
}

function leaseFenceOf({ writes }: RowView, mutation: PrewriteMutation, request: PrewriteRequest): Timestamp {
  if (!mutation.keepsLease) return mutation.leaseFence ?? 0
  const replaced = newestData(writes, Number.MAX_SAFE_INTEGER)
  return exists(replaced, request) ? attachedFence(writes) : 0
}

/**
 * The present locks decide, not this request. With one plain lock, others wait for the client; when all are async, others may
 * commit the transaction by them.
 * @param leastOfNew the least commit_ts of the keys that are locked now.
 */
function commitKind(
  request: PrewriteRequest,
  keysToLock: number,
  locked: readonly Lock[],
  leastOfNew: Timestamp,
): CommitKind {
  if (locked.some((lock) => !lock.useAsyncCommit)) return 'two_pc'
  if (keysToLock > 0 && request.maxCommitTs && leastOfNew > request.maxCommitTs) return 'two_pc'
  if (request.tryOnePc && locked.length === 0) return 'one_pc'
  if (keysToLock > 0 || locked.length === 0) {
    // 1PC cannot skip a key that is locked already.
    if (request.tryOnePc || !request.useAsyncCommit) return 'two_pc'
  }
  // Others look for the secondaries in the primary's lock: without one nobody could commit by the secondaries.
  const hasSecondaries = keysToLock > 0 || locked.length > 0 || (request.secondaries ?? []).length > 0
  return hasSecondaries && primaryOp(request) === 'check_not_exists' ? 'two_pc' : 'async'
}

function primaryOp({ mutations, primary }: PrewriteRequest): PrewriteMutation['op'] | undefined {
  return mutations.find(({ key }) => sameKey(key, primary))?.op
}

/**
 * Commit timestamp of a request that writes nothing. It is not stored, so a repeat must calculate the same one, whatever has been
 * read since. No lock of the transaction in another request is below it. TiKV `prewrite`, `should_not_write`.
 */
function commitTsOfNothing(request: PrewriteRequest): Timestamp {
  const leastAsked = primaryOp(request) === undefined ? 0 : (request.minCommitTs ?? 0)
  return Math.max(request.startTs + 1, leastAsked)
}

/** Above the start, every read so far, and the requested minimum. TiKV `async_commit_timestamps`. */
function calculatedCommitTs(request: PrewriteRequest, context: PrewriteContext): Timestamp {
  const above = Math.max(context.maxTs, request.startTs, request.forUpdateTs ?? 0) + 1
  return Math.max(above, request.minCommitTs ?? 0)
}

/** A lock that was forced past a newer version has to commit above it, whatever the request's for_update_ts. */
function leastCommitTs(calculated: Timestamp, { minCommitTs, forUpdateTs }: KeyStatus & { kind: 'free' }): Timestamp {
  return Math.max(calculated, minCommitTs, forUpdateTs === 0 ? 0 : forUpdateTs + 1)
}

/**
 * A feed has passed `passedTs`, so nothing may commit at or below it any more. A client that starts below it and took its
 * commit_ts too early gets `commit_ts_expired`. A transaction that starts above it holds back the next resolved_ts.
 */
function leastPlainCommitTs(
  { startTs }: PrewriteRequest,
  { minCommitTs }: KeyStatus & { kind: 'free' },
  { passedTs = 0 }: PrewriteContext,
): Timestamp {
  return startTs > passedTs ? minCommitTs : Math.max(minCommitTs, passedTs + 1)
}

function checkKey(
  row: RowView,
  mutation: PrewriteMutation,
  request: PrewriteRequest,
  action: PessimisticAction | undefined,
  forUpdateTsMax = Number.POSITIVE_INFINITY,
): Outcome<KeyStatus> {
  const { lock } = row
  if (mutation.leaseFence && !request.commitEffects?.leases?.some(({ fence }) => fence === mutation.leaseFence))
    return refused(invalid('lease_fence', `no lease among the riders has the fence ${mutation.leaseFence}`))
  const isOthers = lock !== undefined && lock.startTs !== request.startTs
  if (action === 'do' && (lock === undefined || isOthers)) {
    const amended = isOthers ? refused(pessimisticLockNotFound(row.key, request.startTs)) : checkAmend(row, request)
    if (!amended.ok) return amended
  }
  // Comes first and is never skipped. (TiKV stops at a newer record or a lock, or does not look.)
  const own = rollbackOf(row.writes, request.startTs)
  if (own !== undefined) return refused(conflictWith(row.key, request, own, 'self_rolled_back'))
  const isPessimistic = request.forUpdateTs !== undefined && request.forUpdateTs !== 0
  const free = { ttlMs: request.lockTtl, minCommitTs: request.minCommitTs ?? 0, forUpdateTs: request.forUpdateTs ?? 0 }

  if (isOthers) {
    const info = lockInfo(row.key, lock)
    return refused(keyLocked(isPessimistic ? { ...info, ttl: 0 } : info))
  }
  if (lock !== undefined && lock.type !== 'pessimistic') return done({ kind: 'locked', lock })
  if (lock !== undefined && lock.forUpdateTs > forUpdateTsMax)
    return refused(pessimisticLockNotFound(row.key, request.startTs))
  if (lock !== undefined && !isPessimistic) {
    const detail = `the transaction at ${request.startTs} holds a pessimistic lock on ${printKey(row.key)}: prewrite with for_update_ts`
    return refused(invalid('for_update_ts', detail))
  }
  if (!skipsConstraintCheck(request, action)) {
    const newer = checkNewerVersion(row, mutation, request, action)
    if (!newer.ok) return newer
  }
  const asserted = checkAssertion(row, mutation, request, action)
  if (!asserted.ok) return asserted
  if (lock === undefined) return done({ kind: 'free', ...free })
  return done({
    kind: 'free',
    ttlMs: Math.max(free.ttlMs, lock.ttlMs),
    minCommitTs: Math.max(free.minCommitTs, lock.minCommitTs),
    forUpdateTs: Math.max(free.forUpdateTs, lock.forUpdateTs),
  })
}

/** A pessimistic transaction made its checks when it locked; others make them in the prewrite. */
function skipsConstraintCheck(request: PrewriteRequest, action: PessimisticAction | undefined): boolean {
  return action === undefined ? request.skipConstraintCheck === true : action === 'do'
}

/**
 * A lost pessimistic lock does not matter when no transaction has written the key since this one started. TiKV
 * `amend_pessimistic_lock`.
 */
function checkAmend(row: RowView, request: PrewriteRequest): Outcome<void> {
  const newest = row.writes[0]
  if (newest !== undefined && newest.commitTs >= request.startTs)
    return refused(pessimisticLockNotFound(row.key, request.startTs))
  return done(undefined)
}

/** TiKV `check_for_newer_version` and `check_data_constraint`. */
function checkNewerVersion(
  row: RowView,
  mutation: PrewriteMutation,
  request: PrewriteRequest,
  action: PessimisticAction | undefined,
): Outcome<void> {
  for (const write of row.writes) {
    if (action === undefined || action === 'constraint') {
      const reason = action === undefined ? 'optimistic' : 'lazy_uniqueness_check'
      if (write.commitTs > request.startTs) return refused(conflictWith(row.key, request, write, reason))
    }
    if (action !== undefined && write.commitTs > (request.forUpdateTs ?? 0)) {
      // A rollback may be recorded while a pessimistic lock stands, and is no conflict.
      if (write.type === 'rollback') continue
      return refused(pessimisticLockNotFound(row.key, request.startTs))
    }
    const mustBeAbsent = mutation.op === 'insert' || mutation.op === 'check_not_exists'
    if (mustBeAbsent && exists(newestData(row.writes, write.commitTs), request)) return refused(alreadyExists(row.key))
    return done(undefined)
  }
  return done(undefined)
}

/** Checks the assertion in every case (TiKV's strict level). A conflict explains more, so it is reported first. */
function checkAssertion(
  row: RowView,
  mutation: PrewriteMutation,
  request: PrewriteRequest,
  action: PessimisticAction | undefined,
): Outcome<void> {
  if (mutation.assertion === undefined) return done(undefined)
  const newest = newestData(row.writes, Number.MAX_SAFE_INTEGER)
  if (exists(newest, request) === (mutation.assertion === 'exist')) return done(undefined)
  const conflict = checkNewerVersion(row, mutation, request, action)
  if (!conflict.ok) return conflict
  const detail = `key ${printKey(row.key)} was asserted to ${mutation.assertion === 'exist' ? 'exist' : 'be absent'}`
  return refused(
    new KvError('assertion_failed', detail, {
      key: row.key,
      startTs: request.startTs,
      assertion: mutation.assertion,
      existingStartTs: newest?.startTs ?? 0,
      existingCommitTs: newest?.commitTs ?? 0,
    }),
  )
}

/** A pessimistic transaction saw the key when it locked it, so its for_update_ts counts. */
function exists(newest: WriteRecord | undefined, { startTs, forUpdateTs = 0 }: PrewriteRequest): boolean {
  return newest !== undefined && isVisible(newest, Math.max(startTs, forUpdateTs))
}

function newestData(writes: readonly WriteRecord[], ts: Timestamp): WriteRecord | undefined {
  return writes.find((write) => write.commitTs <= ts && isData(write))
}

/**
 * Looks for an earlier try of this request. A commit on some keys is this transaction's only when the other keys have its record
 * or lock too. Otherwise another transaction used its start_ts, and mistaking that commit for its own would lose the other keys.
 * @returns the commit_ts of the transaction; undefined when it is not committed.
 */
function checkBefore(rows: readonly RowView[], request: PrewriteRequest): Outcome<Timestamp | undefined> {
  const { startTs, mutations } = request
  let commitTs: Timestamp | undefined
  let untouched: RowView | undefined
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as RowView
    const committed = committedAt(row, startTs)
    const isLocked = row.lock?.startTs === startTs
    if (request.isFirst && (committed !== undefined || isLocked))
      return refused(withEntries([startTsTaken(row.key, request)]))
    if (committed !== undefined) commitTs = committed
    else if ((!isLocked || row.lock?.type === 'pessimistic') && mutations[i]?.op !== 'check_not_exists')
      untouched ??= row
  }
  if (commitTs !== undefined && untouched !== undefined)
    return refused(withEntries([startTsTaken(untouched.key, request, commitTs)]))
  return done(commitTs)
}

function committedAt(row: RowView, startTs: Timestamp): Timestamp | undefined {
  const record = txnRecord(row.writes, startTs)
  return record.kind === 'record' && record.write.type !== 'rollback' ? record.write.commitTs : undefined
}

function answerCommitted(request: PrewriteRequest, commitTs: Timestamp): PrewriteAnswer {
  return request.tryOnePc ? { onePcCommitTs: commitTs } : { minCommitTs: commitTs }
}

function lockKey(
  row: RowView,
  mutation: PrewriteMutation,
  request: PrewriteRequest,
  status: KeyStatus & { kind: 'free' },
  kind: CommitKind,
  context: PrewriteContext,
): Mutation[] {
  const { key } = row
  const value = mutation.value
  const isShort = value !== undefined && value.length <= context.shortValueBytesMax
  const lock: Lock = {
    type: writeType(mutation),
    primary: request.primary,
    startTs: request.startTs,
    ttlMs: status.ttlMs,
    shortValue: isShort ? value : undefined,
    expireTs: mutation.expireTs ?? 0,
    leaseFence: leaseFenceOf(row, mutation, request),
    forUpdateTs: status.forUpdateTs,
    txnSize: request.txnSize ?? 0,
    minCommitTs: status.minCommitTs,
    useAsyncCommit: kind === 'async',
    secondaries: kind === 'async' && sameKey(key, request.primary) ? (request.secondaries ?? []) : [],
    rollbackTs: rollbacksAbove(row.writes, request.startTs),
  }
  const mutations: Mutation[] = [{ type: 'put-lock', key, lock }]
  if (value !== undefined && !isShort) mutations.push({ type: 'put-value', key, startTs: request.startTs, value })
  return mutations
}

/** 1PC: writes the record at once, and removes a pessimistic lock of the key. TiKV `handle_1pc_locks`. */
function writeNow(
  row: RowView,
  mutation: PrewriteMutation,
  request: PrewriteRequest,
  commitTs: Timestamp,
  context: PrewriteContext,
): Mutation[] {
  const key = mutation.keyAt === undefined ? row.key : mutation.keyAt(commitTs)
  const value = mutation.value
  const isShort = value !== undefined && value.length <= context.shortValueBytesMax
  const write: WriteRecord = {
    type: writeType(mutation),
    startTs: request.startTs,
    commitTs,
    shortValue: isShort ? value : undefined,
    expireTs: mutation.expireTs ?? 0,
    leaseFence: leaseFenceOf(row, mutation, request),
    isProtected: false,
    hasOverlappedRollback: rollbacksAbove(row.writes, request.startTs).includes(commitTs),
  }
  const mutations: Mutation[] = [{ type: 'put-write', key, write }]
  if (value !== undefined && !isShort) mutations.push({ type: 'put-value', key, startTs: request.startTs, value })
  if (row.lock !== undefined) mutations.push({ type: 'delete-lock', key })
  return mutations
}

/** start_ts of rollbacks above `startTs`. A commit at exactly one of them overwrites its record, and gets a flag instead. */
function rollbacksAbove(writes: readonly WriteRecord[], startTs: Timestamp): readonly Timestamp[] {
  if ((writes[0]?.commitTs ?? 0) <= startTs) return NO_TIMESTAMPS
  return writes.flatMap(({ type, commitTs }) => (type === 'rollback' && commitTs > startTs ? [commitTs] : []))
}

function writeType(mutation: PrewriteMutation): 'put' | 'delete' | 'lock' {
  return mutation.op === 'delete' || mutation.op === 'lock' ? mutation.op : 'put'
}

function conflictWith(
  key: Uint8Array,
  request: PrewriteRequest,
  write: WriteRecord,
  reason: WriteConflictReason,
): KvError {
  const { startTs } = request
  const detail =
    reason === 'self_rolled_back'
      ? `the transaction at ${startTs} was rolled back on ${printKey(key)}`
      : `key ${printKey(key)} was written at ${write.commitTs}, after the transaction's start at ${startTs}`
  return writeConflict(key, request, write, reason, detail)
}

function pessimisticLockNotFound(key: Uint8Array, startTs: Timestamp): KvError {
  const detail = `the pessimistic lock of the transaction at ${startTs} on ${printKey(key)} is gone`
  return new KvError('pessimistic_lock_not_found', detail, { key, startTs })
}
