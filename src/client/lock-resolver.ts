import type { LockInfo, PercolatorApi, TxnStatus } from '../percolator/api.js'
import { isKvError } from '../percolator/errors.js'
import { physicalMs, type Timestamp } from '../percolator/timestamp.js'
import { Backoff } from './backoff.js'

type ResolverApi = Pick<PercolatorApi, 'tso' | 'checkTxnStatus' | 'checkSecondaryLocks' | 'resolveLock'>

/**
 * Runs `body`, and where it meets locks brings their transactions to an end first: rolls them forward or back when
 * their primaries say so, or waits with back-off while they live.
 * @param waitMs how long to go on; `body` is tried at least once, and once more after locks were resolved.
 * @throws whatever `body` throws; its `key_locked` only once `waitMs` has passed.
 */
export async function resolvingLocks<T>(api: ResolverApi, waitMs: number, body: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + waitMs
  const backoff = new Backoff()
  for (;;) {
    try {
      return await body()
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
      if (await resolveLocks(api, locksOf(error), await api.tso(1))) continue
      const left = deadline - performance.now()
      if (left <= 0) throw error
      await backoff.wait(left)
    }
  }
}

function locksOf(
  error: { readonly fields: { readonly lock?: LockInfo; readonly locks?: readonly LockInfo[] } } & {
    readonly errors: readonly unknown[] | undefined
  },
): readonly LockInfo[] {
  if (error.fields.locks !== undefined) return error.fields.locks
  const each = error.errors?.flatMap((entry) => (isKvError(entry, 'key_locked') ? [entry.fields.lock] : []))
  return (each ?? [error.fields.lock]).flatMap((lock) => (lock === undefined ? [] : [lock]))
}

/**
 * Tries to bring the transactions of these locks to an end.
 * @param currentTs what their TTLs are compared with; `TIMESTAMP_MAX` ends them whatever their age.
 * @returns true when every lock is gone: whoever met them can go on at once.
 * @see TiKV client-go `txnkv/txnlock/lock_resolver.go`; the paper, section 2.2 ("cleanup").
 */
export async function resolveLocks(
  api: ResolverApi,
  locks: readonly LockInfo[],
  currentTs: Timestamp,
): Promise<boolean> {
  const decided = new Map<Timestamp, Timestamp | undefined>()
  let areAllGone = true
  for (const lock of locks) {
    if (!decided.has(lock.startTs)) decided.set(lock.startTs, await decide(api, lock, currentTs))
    const commitTs = decided.get(lock.startTs)
    if (commitTs === undefined) areAllGone = false
    else await api.resolveLock({ txns: [{ startTs: lock.startTs, commitTs }], keys: [lock.key], isDecided: true })
  }
  return areAllGone
}

/** The commit_ts of a lock's transaction; 0 when it is rolled back; undefined while it lives. */
async function decide(api: ResolverApi, lock: LockInfo, currentTs: Timestamp): Promise<Timestamp | undefined> {
  const isExpired = physicalMs(lock.startTs) + lock.ttl < physicalMs(currentTs)
  // Before the TTL is over a missing primary may only be late.
  const check = {
    primary: lock.primary,
    lockTs: lock.startTs,
    callerStartTs: 0,
    currentTs,
    rollbackIfNotExist: isExpired,
  }
  let status: TxnStatus
  try {
    status = await api.checkTxnStatus(check)
  } catch (error) {
    if (isKvError(error, 'txn_not_found')) return undefined
    throw error
  }
  if (status.status !== 'locked') return status.commitTs
  const primary = status.lock
  if (primary === undefined || !primary.useAsyncCommit) return undefined
  if (physicalMs(primary.startTs) + primary.ttl >= physicalMs(currentTs)) return undefined
  const commitTs = await decideAsyncCommit(api, primary)
  if (commitTs !== 'fallen_back') return commitTs
  const fallback = await api.checkTxnStatus({ ...check, forceSyncCommit: true })
  return fallback.status === 'locked' ? undefined : fallback.commitTs
}

/**
 * An async-commit transaction is committed once all its keys are prewritten, at the highest min_commit_ts of them; one
 * that is missing can't come any more, once asked for. The primary is brought to its end first, so that everybody who
 * asks later hears the same.
 */
async function decideAsyncCommit(api: ResolverApi, primary: LockInfo): Promise<Timestamp | 'fallen_back'> {
  let commitTs = primary.minCommitTs
  if (primary.secondaries.length > 0) {
    const answer = await api.checkSecondaryLocks({ keys: primary.secondaries, startTs: primary.startTs })
    if (answer.locks.some((lock) => !lock.useAsyncCommit)) return 'fallen_back'
    if (answer.commitTs > 0) commitTs = answer.commitTs
    else if (answer.locks.length < primary.secondaries.length) commitTs = 0
    else commitTs = Math.max(commitTs, ...answer.locks.map((lock) => lock.minCommitTs))
  }
  await api.resolveLock({ txns: [{ startTs: primary.startTs, commitTs }], keys: [primary.key] })
  return commitTs
}
