import { isKvError, type KvError } from '../errors/kv-error.js'
import type { LockInfo } from '../errors/lock-info.js'
import type { Awaitable } from '../event-loop/after.js'
import { type LazySignal, signalOf, stagesOf } from '../event-loop/lazy-signal.js'
import { timed } from '../event-loop/stages.js'
import type { PercolatorApi, TxnStatus } from '../percolator/api.js'
import { isExpired } from '../percolator/lock.js'
import { sameKey } from '../percolator/row.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { Backoff } from './backoff.js'
import { txnText } from './found-locks.js'

type ResolverApi = Pick<
  PercolatorApi,
  'now' | 'get' | 'checkTxnStatus' | 'checkSecondaryLocks' | 'resolveLock' | 'pessimisticRollback'
>

export type Resolver = Pick<LockResolver, 'resolving' | 'resolve' | 'end'>

export interface Waiting {
  /** Longest wait for other transactions' locks before `key_locked`. */
  readonly lockWaitMs: number
  readonly signal?: LazySignal | undefined
}

type TxnOfLock = Pick<LockInfo, 'primary' | 'startTs' | 'ttl' | 'type'>

/** Bound on the questions of `endNow` while other clients change the locks that decide. */
const ENDING_TRIES_MAX = 10

/** commit_ts of each transaction, by `txnText`, that one call knows to be decided; 0 means rolled back. */
type Decided = Map<string, Timestamp>

/**
 * Ends the transactions of locks as their primaries decide: commits them, rolls them back, or waits while they live.
 *
 * Outcomes are not cached between calls (client-go has a cache). Once the records of a transaction are gone, by `delete_range`, a
 * collection or a restore, another transaction may bear the same start_ts and primary.
 * @see TiKV client-go `txnkv/txnlock/lock_resolver.go`; the paper, section 2.2 ("cleanup").
 */
export class LockResolver {
  readonly #api: ResolverApi

  constructor(api: ResolverApi) {
    this.#api = api
  }

  /**
   * Runs `body` until it meets no lock. In between, resolves the locks that it met, or waits with back-off while their
   * transactions are alive.
   * @param waitMs time limit. `body` runs at least once, and once more after locks were resolved.
   * @throws the error of `body`; its `key_locked` only after `waitMs`.
   */
  async resolving<T>(waitMs: number, body: () => Awaitable<T>, lazy?: LazySignal): Promise<T> {
    const deadline = performance.now() + waitMs
    let backoff: Backoff | undefined
    let signal = typeof lazy === 'function' ? undefined : lazy
    for (let isLastTry = false; ; ) {
      signal?.throwIfAborted()
      try {
        return await body()
      } catch (error) {
        if (!isKvError(error, 'key_locked') || isLastTry) throw error
        isLastTry = performance.now() >= deadline
        signal ??= signalOf(lazy)
        const stages = stagesOf(lazy)
        if (await timed(stages, 'lockMs', this.#resolveNow(locksOf(error)))) continue
        if (isLastTry) throw error
        backoff ??= new Backoff()
        await timed(stages, 'lockMs', backoff.wait(Math.max(0, deadline - performance.now()), signal))
      }
    }
  }

  /**
   * `resolving` for a read that may be answered in this turn of the event loop.
   * @param waiting called only when the read is not answered at once.
   */
  reading<T>(read: () => Awaitable<T>, waiting: () => Waiting): Awaitable<T> {
    const begun = read()
    if (!(begun instanceof Promise)) return begun
    begun.catch(() => {}) // The signal may end the call first; nobody waits for the read then.
    const { lockWaitMs, signal } = waiting()
    let first: Promise<T> | undefined = begun
    const body = (): Promise<T> => {
      const answer = Promise.resolve(first ?? read())
      first = undefined
      return timed(stagesOf(signal), 'readMs', answer)
    }
    return this.resolving(lockWaitMs, body, signal)
  }

  async #resolveNow(locks: readonly LockInfo[]): Promise<boolean> {
    return this.resolve(locks, await this.#api.now())
  }

  /**
   * Tries to end the transactions of these locks.
   * @param currentTs TTLs are compared with it; `TIMESTAMP_MAX` ends transactions of any age.
   * @returns true when every lock is gone, so that the caller can go on at once.
   */
  async resolve(locks: readonly LockInfo[], currentTs: Timestamp): Promise<boolean> {
    const living = new Set<string>()
    const known: Decided = new Map()
    const ended = new Map<
      string,
      { readonly startTs: Timestamp; readonly commitTs: Timestamp; readonly keys: Uint8Array[] }
    >()
    let areAllGone = true
    for (const lock of locks) {
      const txn = txnText(lock)
      const commitTs = living.has(txn) ? undefined : await this.#decide(lock, currentTs, known)
      if (commitTs === undefined) {
        living.add(txn)
        areAllGone = false
      } else if (lock.type === 'pessimistic') {
        const { key, startTs, forUpdateTs } = lock
        await this.#api.pessimisticRollback({ keys: [key], startTs, forUpdateTs })
      } else if (!sameKey(lock.key, lock.primary)) {
        // The lock of the primary went with the decision.
        const keys: Uint8Array[] = ended.get(txn)?.keys ?? []
        keys.push(lock.key)
        ended.set(txn, { startTs: lock.startTs, commitTs, keys })
      }
    }
    for (const { startTs, commitTs, keys } of ended.values())
      await this.#api.resolveLock({ txns: [{ startTs, commitTs }], keys, isDecided: true })
    return areAllGone
  }

  /**
   * Ends a transaction whatever its TTL. Only for its own coordinator, when the answer to its commit was lost.
   * @returns its commit_ts; 0 when it is rolled back.
   * @throws KvError `ts_below_safe_point` when a commit record may have been collected, so that a rollback is not certain.
   */
  async end(primary: Uint8Array, startTs: Timestamp): Promise<Timestamp> {
    const commitTs = await this.#decide({ primary, startTs, ttl: 0, type: 'put' }, TIMESTAMP_MAX)
    if (commitTs === undefined) throw new Error(`the transaction at ${startTs} lives on after its time`)
    if (commitTs === 0) await this.#requireNotCollected(primary, startTs)
    return commitTs
  }

  /**
   * Ends the transaction of a lock whatever its TTL. If the primary cannot tell the outcome, the transaction counts as
   * rolled back.
   * @returns its commit_ts; 0 when it is rolled back.
   */
  async endNow({ primary, startTs }: Pick<LockInfo, 'primary' | 'startTs'>): Promise<Timestamp> {
    for (let triesLeft = ENDING_TRIES_MAX; triesLeft > 0; triesLeft--) {
      const commitTs = await this.#decide({ primary, startTs, ttl: 0, type: 'put' }, TIMESTAMP_MAX)
      if (commitTs !== undefined) return commitTs
    }
    return 0
  }

  /**
   * The store admits a read at `startTs` only if no later record can have been collected. The value read is ignored.
   */
  async #requireNotCollected(primary: Uint8Array, startTs: Timestamp): Promise<void> {
    try {
      await this.#api.get({ key: primary, ts: startTs })
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
    }
  }

  /** @returns the commit_ts of a lock's transaction; 0 when it is rolled back; undefined while it is alive. */
  async #decide(lock: TxnOfLock, currentTs: Timestamp, decided: Decided = new Map()): Promise<Timestamp | undefined> {
    const txn = txnText(lock)
    const known = decided.get(txn)
    if (known !== undefined) return known
    const status = await this.#check(lock, currentTs)
    if (status === undefined) return undefined
    // The end of a pessimistic lock does not end its transaction, which may go on and lock again: not remembered.
    if (status.action === 'ttl_expire_pessimistic_rollback' || status.action === 'lock_not_exist_do_nothing') return 0
    const commitTs = status.status === 'locked' ? await this.#decideLocked(status, currentTs) : status.commitTs
    if (commitTs !== undefined) decided.set(txn, commitTs)
    return commitTs
  }

  /** @returns undefined while the state cannot be known, for example because the primary's prewrite may be late. */
  async #check(lock: TxnOfLock, currentTs: Timestamp, forceSyncCommit = false): Promise<TxnStatus | undefined> {
    if (isHidden(lock.primary)) return undefined
    try {
      return await this.#api.checkTxnStatus({
        primary: lock.primary,
        lockTs: lock.startTs,
        callerStartTs: 0,
        currentTs,
        // Until the TTL is over, the prewrite of a missing primary may only be late.
        rollbackIfNotExist: hasExpired(lock, currentTs),
        resolvingPessimisticLock: lock.type === 'pessimistic',
        forceSyncCommit,
        verifyIsPrimary: true,
      })
    } catch (error) {
      // The caller's token does not permit this call or this primary. Other clients will end the transaction.
      if (isKvError(error, 'forbidden')) return undefined
      // The lock was read before its transaction chose another primary. By now it is gone or names the right primary.
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
   * An async-commit transaction is committed at the highest min_commit_ts once all its keys are prewritten. Asking for
   * a missing key writes a Rollback record, so its prewrite cannot land later. The primary is ended first, so that
   * every later question gets the same answer.
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

  /** @returns false when the lock has changed: another client ended or pushed it, perhaps with another outcome. */
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
}

function hasExpired({ startTs, ttl }: Pick<LockInfo, 'startTs' | 'ttl'>, currentTs: Timestamp): boolean {
  return isExpired({ startTs, ttlMs: ttl }, currentTs)
}

/**
 * The server sends keys that the client's token does not permit as empty. Other clients will end such a transaction.
 */
function isHidden(key: Uint8Array): boolean {
  return key.length === 0
}

export function locksOf(error: KvError<'key_locked'>): readonly LockInfo[] {
  if (error.fields.locks !== undefined) return error.fields.locks
  const each = error.errors?.flatMap((entry) => (isKvError(entry, 'key_locked') ? [entry.fields.lock] : []))
  return (each ?? [error.fields.lock]).flatMap((lock) => (lock === undefined ? [] : [lock]))
}
