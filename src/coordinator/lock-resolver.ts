import { keyText } from '../bytes/key-text.js'
import { isKvError, type KvError } from '../errors/kv-error.js'
import type { LockInfo } from '../errors/lock-info.js'
import { type LateSignal, signalOf } from '../event-loop/late-signal.js'
import type { PercolatorApi, TxnStatus } from '../percolator/api.js'
import { isExpired } from '../percolator/lock.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { Backoff } from './backoff.js'

type ResolverApi = Pick<
  PercolatorApi,
  'now' | 'get' | 'checkTxnStatus' | 'checkSecondaryLocks' | 'resolveLock' | 'pessimisticRollback'
>

/** What coordinating a transaction needs of a `LockResolver`. */
export type Resolver = Pick<LockResolver, 'resolving' | 'resolve' | 'end'>

/** What a lock says of its transaction. */
type TxnOfLock = Pick<LockInfo, 'primary' | 'startTs' | 'ttl' | 'type'>

/** Decided transactions that are remembered. client-go's `ResolvedCacheSize`. */
const DECIDED_MAX = 2048

/**
 * Brings the transactions of locks to the end that their primaries say: forward, back, or waits while they live.
 * @see TiKV client-go `txnkv/txnlock/lock_resolver.go`; the paper, section 2.2 ("cleanup").
 */
export class LockResolver {
  readonly #api: ResolverApi
  /** commit_ts, 0 when rolled back; the longest known go first. */
  readonly #decided = new Map<string, Timestamp>()

  constructor(api: ResolverApi) {
    this.#api = api
  }

  /**
   * Runs `body`, and where it meets locks resolves them first, or waits with back-off while their transactions live.
   * @param waitMs how long to go on; `body` is tried at least once, and once more after locks were resolved.
   * @throws whatever `body` throws; its `key_locked` only once `waitMs` has passed.
   */
  async resolving<T>(waitMs: number, body: () => T | Promise<T>, late?: LateSignal): Promise<T> {
    const deadline = performance.now() + waitMs
    let backoff: Backoff | undefined
    let signal = typeof late === 'function' ? undefined : late
    for (let isLastTry = false; ; ) {
      signal?.throwIfAborted()
      try {
        return await body()
      } catch (error) {
        if (!isKvError(error, 'key_locked') || isLastTry) throw error
        isLastTry = performance.now() >= deadline
        signal ??= signalOf(late)
        if (await this.resolve(locksOf(error), await this.#api.now())) continue
        if (isLastTry) throw error
        backoff ??= new Backoff()
        await backoff.wait(Math.max(0, deadline - performance.now()), signal)
      }
    }
  }

  /**
   * Tries to bring the transactions of these locks to an end.
   * @param currentTs what their TTLs are compared with; `TIMESTAMP_MAX` ends them whatever their age.
   * @returns true when every lock is gone: whoever met them can go on at once.
   */
  async resolve(locks: readonly LockInfo[], currentTs: Timestamp): Promise<boolean> {
    /** Transactions of these locks that live. */
    const living = new Set<string>()
    let areAllGone = true
    for (const lock of locks) {
      const txn = txnText(lock)
      const commitTs = living.has(txn) ? undefined : await this.#decide(lock, currentTs)
      if (commitTs === undefined) {
        living.add(txn)
        areAllGone = false
      } else if (lock.type === 'pessimistic') {
        const { key, startTs, forUpdateTs } = lock
        await this.#api.pessimisticRollback({ keys: [key], startTs, forUpdateTs })
      } else {
        const txns = [{ startTs: lock.startTs, commitTs }]
        await this.#api.resolveLock({ txns, keys: [lock.key], isDecided: true })
      }
    }
    return areAllGone
  }

  /**
   * Ends a transaction now, for its own coordinator, who lost track of it.
   * @returns its commit_ts; 0 when it is rolled back, then or before.
   * @throws KvError `ts_below_safe_point` when that can't be told from a commit whose record was collected since.
   */
  async end(primary: Uint8Array, startTs: Timestamp): Promise<Timestamp> {
    const commitTs = await this.#decide({ primary, startTs, ttl: 0, type: 'put' }, TIMESTAMP_MAX)
    if (commitTs === undefined) throw new Error(`the transaction at ${startTs} lives on after its time`)
    if (commitTs === 0) await this.#requireNotCollected(primary, startTs)
    return commitTs
  }

  /** A read at the start is admitted while nothing from there on can have been collected; what it says is all one. */
  async #requireNotCollected(primary: Uint8Array, startTs: Timestamp): Promise<void> {
    try {
      await this.#api.get({ key: primary, ts: startTs })
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
    }
  }

  /** The commit_ts of a lock's transaction; 0 when it is rolled back; undefined while it lives. */
  async #decide(lock: TxnOfLock, currentTs: Timestamp): Promise<Timestamp | undefined> {
    const txn = txnText(lock)
    const known = this.#decided.get(txn)
    if (known !== undefined) return known
    const status = await this.#check(lock, currentTs)
    if (status === undefined) return undefined
    // A pessimistic lock that goes says nothing of its transaction: that may go on and lock again.
    if (status.action === 'ttl_expire_pessimistic_rollback' || status.action === 'lock_not_exist_do_nothing') return 0
    const commitTs = status.status === 'locked' ? await this.#decideLocked(status, currentTs) : status.commitTs
    if (commitTs !== undefined) this.#remember(txn, commitTs)
    return commitTs
  }

  /** undefined: it cannot be known yet. There is no trace of the transaction, and it may only be late, say. */
  async #check(lock: TxnOfLock, currentTs: Timestamp, forceSyncCommit = false): Promise<TxnStatus | undefined> {
    if (isHidden(lock.primary)) return undefined
    try {
      return await this.#api.checkTxnStatus({
        primary: lock.primary,
        lockTs: lock.startTs,
        callerStartTs: 0,
        currentTs,
        // Before the TTL is over a missing primary may only be late.
        rollbackIfNotExist: hasExpired(lock, currentTs),
        resolvingPessimisticLock: lock.type === 'pessimistic',
        forceSyncCommit,
        verifyIsPrimary: true,
      })
    } catch (error) {
      // A token that may not ask, or not about this primary: others will end the transaction.
      if (isKvError(error, 'forbidden')) return undefined
      // A lock that was seen before its transaction chose another primary: it has gone, or names the right one by now.
      if (isKvError(error, 'txn_not_found') || isKvError(error, 'primary_mismatch')) return undefined
      throw error
    }
  }

  async #decideLocked({ lock: primary }: TxnStatus, currentTs: Timestamp): Promise<Timestamp | undefined> {
    if (primary === undefined || !primary.useAsyncCommit || !hasExpired(primary, currentTs)) return undefined
    if (primary.secondaries.some(isHidden)) return undefined
    const decided = await this.#decideAsyncCommit(primary)
    if (typeof decided === 'number') return decided
    const status = await this.#check(primary, currentTs, decided === 'fallen_back')
    return status === undefined || status.status === 'locked' ? undefined : status.commitTs
  }

  /**
   * An async-commit transaction is committed once all its keys are prewritten, at the highest min_commit_ts of them;
   * one that is missing can't come any more, once asked for. The primary is brought to its end first, so that everybody
   * who asks later hears the same.
   */
  async #decideAsyncCommit(primary: LockInfo): Promise<Timestamp | 'fallen_back' | 'changed'> {
    let commitTs = primary.minCommitTs
    if (primary.secondaries.length > 0) {
      const answer = await this.#api.checkSecondaryLocks({ keys: primary.secondaries, startTs: primary.startTs })
      if (answer.locks.some((lock) => !lock.useAsyncCommit)) return 'fallen_back'
      if (answer.commitTs > 0) commitTs = answer.commitTs
      else if (answer.locks.length < primary.secondaries.length) commitTs = 0
      else commitTs = Math.max(commitTs, ...answer.locks.map((lock) => lock.minCommitTs))
    }
    return (await this.#endPrimary(primary, commitTs)) ? commitTs : 'changed'
  }

  /** @returns false when its lock is not what it was: somebody ended or pushed it, and may have come to another end. */
  async #endPrimary({ key, startTs }: LockInfo, commitTs: Timestamp): Promise<boolean> {
    try {
      const { resolved } = await this.#api.resolveLock({ txns: [{ startTs, commitTs }], keys: [key] })
      return resolved > 0
    } catch (error) {
      if (isKvError(error, 'commit_ts_expired') || isKvError(error, 'already_committed')) return false
      if (isKvError(error, 'txn_lock_not_found')) return false
      throw error
    }
  }

  #remember(txn: string, commitTs: Timestamp): void {
    this.#decided.set(txn, commitTs)
    if (this.#decided.size <= DECIDED_MAX) return
    for (const oldest of this.#decided.keys()) {
      this.#decided.delete(oldest)
      break
    }
  }
}

function hasExpired({ startTs, ttl }: Pick<LockInfo, 'startTs' | 'ttl'>, currentTs: Timestamp): boolean {
  return isExpired({ startTs, ttlMs: ttl }, currentTs)
}

/** Whether the server keeps it from this client, whose token does not reach it: others will end the transaction. */
function isHidden(key: Uint8Array): boolean {
  return key.length === 0
}

/** Clients choose start_ts, and some choose one twice: with its primary it is unmistakable. */
function txnText({ startTs, primary }: Pick<LockInfo, 'startTs' | 'primary'>): string {
  return `${startTs} ${keyText(primary)}`
}

/** Every lock that a `key_locked` tells of. */
export function locksOf(error: KvError<'key_locked'>): readonly LockInfo[] {
  if (error.fields.locks !== undefined) return error.fields.locks
  const each = error.errors?.flatMap((entry) => (isKvError(entry, 'key_locked') ? [entry.fields.lock] : []))
  return (each ?? [error.fields.lock]).flatMap((lock) => (lock === undefined ? [] : [lock]))
}
