import { pairBytes } from '../bytes/answer-size.js'
import { keyText } from '../bytes/key-text.js'
import { isKvError, type KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import { LOCK_TTL_MS_DEFAULT } from '../limits.js'
import type { PercolatorApi, PrewriteAnswer, PrewriteMutation, ReadSet } from '../percolator/api.js'
import { writeConflict } from '../percolator/errors.js'
import type { Timestamp } from '../timestamp.js'
import { Backoff } from './backoff.js'
import { Heartbeat } from './heartbeat.js'
import type { Resolver } from './lock-resolver.js'
import { lockTtlMs } from './lock-ttl.js'
import { isUncertain } from './uncertain.js'
import { Undetermined } from './undetermined.js'

export interface CommitOptions {
  /** Keys and values of one prewrite. TiKV's `TxnCommitBatchSize`. */
  readonly batchBytes: number
  /** One phase where one prewrite has all mutations. False: two. */
  readonly onePhase: boolean
  /** Async commit up to this many keys; 0: never. */
  readonly asyncCommitKeysMax: number
  /** Tries of a request whose answer was lost, before asking what became of the transaction. */
  readonly triesMax: number
  /** A request that was answered is over: no copy of it arrives later, as one may on a network. */
  readonly isInProcess: boolean
  /** How long locks are kept alive from the transaction's start on. client-go `MaxTxnTTL`. */
  readonly heartbeatMaxMs: number
}

/** What a transaction needs of its home. */
export interface TransactionHome {
  readonly api: PercolatorApi
  readonly resolver: Resolver
  readonly commitOptions: CommitOptions
  /** Takes work that nobody waits for. */
  readonly inBackground: (work: Promise<unknown>) => void
}

/** What a transaction comes to when it commits. */
export interface CommitPlan {
  readonly startTs: Timestamp
  /** `performance.now()` at the transaction's start. */
  readonly startedAt: number
  /** Its key is among the mutations. */
  readonly primary: Uint8Array
  readonly mutations: readonly PrewriteMutation[]
  /** Pessimistic: every mutation's key is locked, at or below this. */
  readonly forUpdateTs: Timestamp | undefined
  /** Pessimistic: what each key's lock was granted at. */
  readonly grantedAt: ((key: Uint8Array) => Timestamp) | undefined
  /** Serializable: what else was read. */
  readonly reads: ReadSet | undefined
  /** No earlier commit of it can have been tried: whatever stands at `startTs` is another's. See `PrewriteRequest`. */
  readonly isFirst: boolean
  readonly lockWaitMs: number
  /** Heard until the transaction may have committed. */
  readonly signal: AbortSignal | undefined
}

/** Both in client-go: `config.AsyncCommit.TotalKeySizeLimit`, and its rate limiter's order of magnitude. */
const ASYNC_COMMIT_KEY_BYTES_MAX = 4096
const PARALLEL_MAX = 16

type Kind = 'one_pc' | 'async' | 'two_pc'

/**
 * Two-phase commit, or less: one phase when all mutations fit into one request, async commit for a small transaction.
 *
 * Its promise to the caller: fulfilled with the commit_ts when the transaction committed; rejected with `Undetermined` when
 * nobody knows; rejected with anything else when it did not commit and never will.
 * @see The paper, section 2.2; TiKV client-go `txnkv/transaction/2pc.go`.
 */
export class Committer {
  /** An answer was lost of a request that may have decided the transaction. */
  #isUncertain = false
  /** Locks may stand that nobody but this transaction knows of. */
  #mayHoldLocks: boolean

  constructor(
    readonly home: TransactionHome,
    readonly plan: CommitPlan,
    /** In place of the api's, for a home that does more in the same request. */
    readonly prewrite: PercolatorApi['prewrite'] = (request) => home.api.prewrite(request),
  ) {
    this.#mayHoldLocks = plan.forUpdateTs !== undefined
  }

  run(): Promise<Timestamp> {
    const { onePhase, isInProcess } = this.home.commitOptions
    return this.plan.isFirst && onePhase && isInProcess ? this.#runAtOnce() : this.#runInPhases()
  }

  /** One request, tried once: each write of a server's own client comes this way, so it does no more than it must. */
  async #runAtOnce(): Promise<Timestamp> {
    const { startTs, primary, mutations, reads } = this.plan
    try {
      const { onePcCommitTs } = await this.prewrite({
        mutations,
        primary,
        startTs,
        lockTtl: LOCK_TTL_MS_DEFAULT,
        txnSize: mutations.length,
        tryOnePc: true,
        linearizable: true,
        isFirst: true,
        reads,
      })
      if (onePcCommitTs !== undefined) return onePcCommitTs
    } catch (error) {
      throw isUncertain(error) ? new Undetermined(startTs, error) : error
    }
    const batches = [mutations]
    this.#mayHoldLocks = true
    return this.#commitPrimary(batches).catch((error: unknown) => this.#failed(error, batches))
  }

  async #runInPhases(): Promise<Timestamp> {
    const batches = this.#batches()
    const kind = this.#kindOf(batches)
    let heartbeat: Heartbeat | undefined
    try {
      if (batches.length > 1) {
        this.#mayHoldLocks = true
        // A pessimistic transaction has one already.
        if (this.plan.forUpdateTs === undefined)
          heartbeat = new Heartbeat(
            this.home.api,
            this.plan,
            this.plan.startedAt,
            this.home.commitOptions.heartbeatMaxMs,
          )
      }
      const answers = await this.#prewriteAll(batches, kind)
      const onePcCommitTs = answers[0]?.onePcCommitTs
      if (onePcCommitTs !== undefined) return onePcCommitTs
      this.#mayHoldLocks = true
      const asyncCommitTs = commitTsOf(answers)
      if (kind === 'async' && asyncCommitTs !== undefined) {
        this.home.inBackground(this.#commitRest(batches, asyncCommitTs))
        return asyncCommitTs
      }
      return await this.#commitPrimary(batches)
    } catch (error) {
      return await this.#failed(error, batches)
    } finally {
      heartbeat?.stop()
    }
  }

  /** The first holds the primary. */
  #batches(): PrewriteMutation[][] {
    const { mutations, primary } = this.plan
    const primaryText = keyText(primary)
    const isPrimary = ({ key }: PrewriteMutation): boolean => keyText(key) === primaryText
    const first = mutations.find(isPrimary)
    if (first === undefined) throw new Error(`the primary ${printKey(primary)} is not among the mutations`)
    const batches: PrewriteMutation[][] = [[]]
    let bytes = 0
    for (const mutation of [first, ...mutations.filter((one) => one !== first)]) {
      if (bytes >= this.home.commitOptions.batchBytes) {
        batches.push([])
        bytes = 0
      }
      batches.at(-1)?.push(mutation)
      bytes += pairBytes(mutation)
    }
    return batches
  }

  #kindOf(batches: readonly (readonly PrewriteMutation[])[]): Kind {
    if (batches.length === 1 && this.home.commitOptions.onePhase) return 'one_pc'
    const { mutations, reads } = this.plan
    const keyBytes = mutations.reduce((sum, { key }) => sum + key.length, 0)
    // Async commit decides by prewriting alone: nothing is left to validate between that and the commit.
    const isSmall =
      mutations.length <= this.home.commitOptions.asyncCommitKeysMax && keyBytes <= ASYNC_COMMIT_KEY_BYTES_MAX
    return isSmall && reads === undefined ? 'async' : 'two_pc'
  }

  // ---- Prewrite

  async #prewriteAll(batches: readonly (readonly PrewriteMutation[])[], kind: Kind): Promise<PrewriteAnswer[]> {
    const { primary, mutations, startTs, startedAt, forUpdateTs, grantedAt, reads, signal } = this.plan
    const bytes = mutations.reduce((sum, mutation) => sum + pairBytes(mutation), 0)
    const primaryText = keyText(primary)
    const keys = mutations.map(({ key }) => key).filter((key) => keyText(key) !== primaryText)
    const deadline = performance.now() + this.plan.lockWaitMs
    const common = {
      primary,
      startTs,
      forUpdateTs,
      txnSize: mutations.length,
      linearizable: true,
      ...(kind === 'one_pc' ? { tryOnePc: true, reads } : {}),
      ...(kind === 'async' ? { useAsyncCommit: true } : {}),
    }
    let isStopped = false // One batch failed: the others need not go on.
    const tried = new Set<readonly PrewriteMutation[]>()
    const tryBatch = async (batch: readonly PrewriteMutation[], index: number): Promise<PrewriteAnswer> => {
      if (isStopped) return {}
      try {
        return await this.#surviving(kind !== 'two_pc', () => {
          const isFirst = this.plan.isFirst && !tried.has(batch)
          tried.add(batch)
          return this.prewrite({
            ...common,
            mutations: batch,
            lockTtl: lockTtlMs(bytes, performance.now() - startedAt),
            ...(grantedAt === undefined
              ? {}
              : {
                  pessimisticActions: batch.map(() => 'do' as const),
                  forUpdateTsMax: batch.map(({ key }) => grantedAt(key)),
                }),
            ...(kind === 'async' && index === 0 ? { secondaries: keys } : {}),
            ...(isFirst ? { isFirst } : {}),
          })
        })
      } catch (error) {
        // What was refused now may be granted to a copy of the request that is still on its way.
        if (kind !== 'two_pc' && !this.home.commitOptions.isInProcess && mayChange(error)) this.#isUncertain = true
        throw error
      }
    }
    const prewriteBatch = async (batch: readonly PrewriteMutation[], index: number): Promise<PrewriteAnswer> => {
      try {
        const waitMs = Math.max(0, deadline - performance.now())
        return await this.home.resolver.resolving(waitMs, () => tryBatch(batch, index), signal)
      } catch (error) {
        isStopped = true
        throw error
      }
    }
    return allOf(batches, prewriteBatch)
  }

  /** @param decides the request may commit the transaction: losing its answer for good leaves that open. */
  async #surviving<T>(decides: boolean, call: () => Promise<T>): Promise<T> {
    const backoff = new Backoff()
    for (let triesLeft = this.home.commitOptions.triesMax - 1; ; triesLeft--) {
      try {
        return await call()
      } catch (error) {
        if (!isUncertain(error)) throw error
        if (decides) this.#isUncertain = true
        if (triesLeft <= 0) throw error
        await backoff.wait()
      }
    }
  }

  // ---- Commit

  async #commitPrimary(batches: readonly (readonly PrewriteMutation[])[]): Promise<Timestamp> {
    const { startTs, primary, reads, lockWaitMs, signal } = this.plan
    const backoff = new Backoff()
    for (let tries = 0; ; tries++) {
      signal?.throwIfAborted()
      const commitTs = await this.#surviving(false, async () => this.home.api.tso(1))
      if (reads !== undefined) {
        const validate = (): Promise<void> => this.home.api.validateReads({ ...reads, startTs, commitTs })
        await this.home.resolver.resolving(lockWaitMs, () => this.#surviving(false, validate), signal)
      }
      try {
        const keys = (batches[0] ?? []).map(({ key }) => key)
        const committed = await this.#surviving(true, () => this.home.api.commit({ keys, startTs, commitTs, primary }))
        this.home.inBackground(this.#commitRest(batches.slice(1), committed.commitTs))
        return committed.commitTs
      } catch (error) {
        // A reader went by and raised the lock's min_commit_ts; one that read in the future raised it above the clock.
        if (!isKvError(error, 'commit_ts_expired')) throw error
        if (tries > 0) await backoff.wait(Number.POSITIVE_INFINITY, signal)
      }
    }
  }

  /** The transaction is committed; whoever meets a key that this leaves out finds out from the primary. */
  async #commitRest(batches: readonly (readonly PrewriteMutation[])[], commitTs: Timestamp): Promise<void> {
    const { startTs, primary } = this.plan
    const commit = (keys: Uint8Array[]): Promise<unknown> =>
      this.#surviving(false, () => this.home.api.commit({ keys, startTs, commitTs, primary }))
    await allOf(batches, (batch) => commit(batch.map(({ key }) => key)))
  }

  // ---- Failure

  /**
   * For a commit that was undetermined: finds out, and ends the transaction one way or the other.
   * @throws Undetermined; KvError `write_conflict` (`self_rolled_back`) when it is rolled back, then or before.
   */
  async learn(): Promise<Timestamp> {
    this.#isUncertain = true
    return this.#failed(new Undetermined(this.plan.startTs, undefined), this.#batches())
  }

  /** Finds out whether the transaction failed, if that is open, and cleans up after it. */
  async #failed(error: unknown, batches: readonly (readonly PrewriteMutation[])[]): Promise<Timestamp> {
    if (this.#isUncertain) {
      const commitTs = await this.#end(error)
      if (commitTs > 0) {
        this.home.inBackground(this.#commitRest(batches, commitTs))
        return commitTs
      }
    }
    if (this.#mayHoldLocks || this.#isUncertain) this.home.inBackground(this.#rollBack(batches))
    if (error === this.plan.signal?.reason) throw error
    throw isUncertain(error) && this.#isUncertain ? this.#rolledBack(error) : error
  }

  /** @returns the commit_ts, or 0 once the transaction is rolled back. @throws Undetermined */
  async #end(cause: unknown): Promise<Timestamp> {
    const { primary, startTs } = this.plan
    try {
      return await this.#surviving(false, () => this.home.resolver.end(primary, startTs))
    } catch {
      throw new Undetermined(startTs, cause)
    }
  }

  #rolledBack(cause: unknown): KvError<'write_conflict'> {
    const { primary, startTs } = this.plan
    const detail = `the transaction at ${startTs} was rolled back, since the answers to its commit were lost`
    const itself = { startTs, commitTs: startTs }
    return writeConflict(primary, this.plan, itself, 'self_rolled_back', detail, { cause })
  }

  /** The primary first: its record ends the transaction, and a token of prefixes may not end the other locks before it. */
  async #rollBack([first = [], ...others]: readonly (readonly PrewriteMutation[])[]): Promise<void> {
    const { startTs } = this.plan
    const rollBack = (batch: readonly PrewriteMutation[]): Promise<void> =>
      this.#surviving(false, () => this.home.api.rollback({ keys: batch.map(({ key }) => key), startTs }))
    try {
      await rollBack(first)
    } finally {
      await allOf(others, rollBack)
    }
  }
}

/** Async commit: the highest of all keys; undefined where one fell back to two-phase commit. */
function commitTsOf(answers: readonly PrewriteAnswer[]): Timestamp | undefined {
  let commitTs = 0
  for (const { minCommitTs } of answers) {
    if (minCommitTs === undefined) return undefined
    commitTs = Math.max(commitTs, minCommitTs)
  }
  return commitTs
}

/** Some at a time; waits for all of them before it throws the first failure. */
async function allOf<T, R>(items: readonly T[], body: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  let next = 0
  const run = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++
      results[index] = await body(items[index] as T, index)
    }
  }
  const failures: unknown[] = []
  const runs = Array.from({ length: Math.min(PARALLEL_MAX, items.length) }, () =>
    run().catch((error: unknown) => {
      failures.push(error)
    }),
  )
  await Promise.all(runs)
  if (failures.length > 0) throw failures[0]
  return results
}

/** A refusal that need not last: locks go, and what was written after the start stays so. */
function mayChange(error: unknown): boolean {
  if (isKvError(error, 'write_conflict')) return error.fields.conflictCommitTs === 0
  return isKvError(error, 'key_locked') || isKvError(error, 'pessimistic_lock_not_found')
}
