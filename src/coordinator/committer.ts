import { pairBytes } from '../bytes/answer-size.js'
import { keyText } from '../bytes/key-text.js'
import { isReserved } from '../bytes/reserved-keys.js'
import { invalid, isKvError, KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import { sleep } from '../event-loop/sleep.js'
import type { CommitKind, Stages } from '../event-loop/stages.js'
import type { PercolatorApi, PessimisticAction, PrewriteAnswer, PrewriteMutation, ReadSet } from '../percolator/api.js'
import { isAttachedKey } from '../percolator/codec/attached-key.js'
import { type CommitEffects, type LeaseGuard, primaryOf } from '../percolator/commit-effects.js'
import { writeConflict } from '../percolator/errors.js'
import { LOGICAL_PER_MS, type Timestamp, timestampFromMs } from '../timestamp.js'
import { isAckRefused } from './ack-refused.js'
import type { Attaches } from './attaches.js'
import { Backoff } from './backoff.js'
import type { EffectsAsRows } from './effect-rows.js'
import { Heartbeat } from './heartbeat.js'
import type { Resolver } from './lock-resolver.js'
import { lockTtlMs } from './lock-ttl.js'
import { onePhaseRequest } from './one-phase-request.js'
import type { StampLead } from './stamp-lead.js'
import { isUncertain } from './uncertain.js'
import { Undetermined } from './undetermined.js'

export interface CommitOptions {
  /** Bytes of keys and values per prewrite. TiKV's `TxnCommitBatchSize`. */
  readonly batchBytes: number
  /**
   * A request is not one atomic write, so the first commit request carries the primary alone. The other keys of its
   * batch follow in the background.
   */
  readonly commitsPrimaryAlone: boolean
  readonly onePhase: boolean
  /** In process only: as `onePhase`, for transactions without reads to validate. */
  readonly plainOnePhase: boolean
  /**
   * The store cannot commit in one phase. If a transaction has no commit effects but leases, `validateReads` checks them at the
   * commit_ts.
   */
  readonly checksLeasesAtCommit?: boolean
  /** Most keys of a transaction that uses async commit; 0 turns it off. */
  readonly asyncCommitKeysMax: number
  readonly triesMax: number
  /** A call is repeated, and the outcome of a commit asked for, only while no answer has been lost for longer than this. */
  readonly repeatMsMax: number
  readonly isInProcess: boolean
  /** Heartbeats stop at this age of the transaction. client-go `MaxTxnTTL`. */
  readonly heartbeatMaxMs: number
}

export interface TransactionContext {
  readonly api: PercolatorApi
  readonly resolver: Resolver
  readonly commitOptions: CommitOptions
  /** Absent when the store commits in one phase and takes the commit effects with the prewrite. */
  readonly effectsAsRows?: EffectsAsRows | undefined
  readonly attaches?: Attaches | undefined
  readonly stampLead: StampLead
  /** Runs work that no caller waits for. Its failures are ignored. */
  readonly inBackground: (work: Promise<unknown>) => void
}

export interface CommitPlan {
  readonly startTs: Timestamp
  readonly startedAt: number
  /** Must be the key of one of the mutations; without mutations, `primaryOf` the commit effects. */
  readonly primary: Uint8Array
  readonly mutations: readonly PrewriteMutation[]
  /** Some mutations are versionstamped puts (`keyAt`). */
  readonly isStamped?: boolean | undefined
  /** With commit effects, the transaction commits in one request or not at all, whatever its size. */
  readonly commitEffects?: CommitEffects | undefined
  /** Pessimistic: the highest for_update_ts of the locks. Every mutation's key is locked. */
  readonly forUpdateTs?: Timestamp | undefined
  readonly grantedAt?: ((key: Uint8Array) => Timestamp) | undefined
  /** Pessimistic: the action that a client asked for. Without it, every user key counts as locked. */
  readonly actionOf?: ((key: Uint8Array) => PessimisticAction | undefined) | undefined
  readonly minCommitTs?: Timestamp | undefined
  /** Serializable: reads that the prewrites do not check. */
  readonly reads?: ReadSet | undefined
  /** No earlier commit can have been tried, so any record at `startTs` belongs to another transaction. */
  readonly isFirst?: boolean | undefined
  readonly lockWaitMs: number
  /** Obeyed only until the transaction may have committed. */
  readonly signal?: AbortSignal | undefined
  /** In process only: receives the counts of the second phase and the kind of commit. */
  readonly stages?: Stages | undefined
  readonly markDepth?: number | undefined
}

/** client-go's `config.AsyncCommit.TotalKeySizeLimit`. */
const ASYNC_COMMIT_KEY_BYTES_MAX = 4096
/** The order of magnitude of client-go's rate limiter. */
const PARALLEL_MAX = 16
/** Beyond the lead of a commit_ts: the oracle may stand still for a while, after another server has taken the lead. */
const WAIT_FOR_ORACLE_MS_MAX = 1000

type Kind = 'one_pc' | 'async' | 'two_pc'

/**
 * Commits one transaction: by 1PC when all mutations fit into one request or commit effects are among them, by async commit when
 * it is small, and in two phases otherwise.
 *
 * `run` is fulfilled with the commit_ts when the transaction committed. It rejects with `Undetermined` when the outcome
 * is unknown. It rejects with any other error when the transaction did not commit and never will.
 * @see The paper, section 2.2; TiKV client-go `txnkv/transaction/2pc.go`.
 */
export class Committer {
  /** The answer to a request that may have decided the transaction was lost. */
  #isUncertain = false
  /** A request that decides the transaction was sent. Before that, its signal ends it. */
  #mayHaveDecided = false
  #mayHoldLocks: boolean
  /** Start of the first call since the last answer whose own answer was lost; undefined: none. */
  #lostSinceMs: number | undefined
  /** The request that commits must carry them. */
  #commitEffects: CommitEffects | undefined
  /** Leases to check at the commit_ts, because the store cannot commit in one phase. */
  #leases: readonly LeaseGuard[] = []
  #heartbeat: Heartbeat | undefined
  /** Bytes of keys and values; computed on first use. */
  #bytesKnown: number | undefined
  /**
   * First try only: the batches that may have left locks. A lock at `startTs` in another batch belongs to another transaction.
   */
  #locked: Set<readonly PrewriteMutation[]> | undefined
  /** The plan, in which versionstamped puts have their keys once their commit_ts is chosen. */
  plan: CommitPlan
  /** The commit_ts that was chosen for versionstamped puts. */
  #commitAt: Timestamp | undefined
  /** Keys that `#commitAt` made, by `keyText`. */
  #stampedKeys: ReadonlySet<string> | undefined
  #chosenMs = 0

  constructor(
    readonly context: TransactionContext,
    readonly given: CommitPlan,
    /** Replaces the api's `prewrite`, so that a server can write more in the same request. */
    readonly prewrite: PercolatorApi['prewrite'] = (request) => context.api.prewrite(request),
  ) {
    this.plan = given
    this.#mayHoldLocks = given.forUpdateTs !== undefined
    const { commitEffects } = given
    this.#commitEffects = commitEffects
    if (context.commitOptions.checksLeasesAtCommit && hasLeasesOnly(commitEffects)) this.#checkLeasesAtCommit()
  }

  #checkLeasesAtCommit(): void {
    this.#leases = this.#commitEffects?.leases ?? []
    this.#commitEffects = undefined
  }

  get mayHaveDecided(): boolean {
    return this.#mayHaveDecided
  }

  run(): Promise<Timestamp> {
    return this.#isAtOnce ? this.#runAtOnce() : this.#runInPhases()
  }

  get #isAtOnce(): boolean {
    const { isFirst, reads, forUpdateTs, markDepth, minCommitTs, isStamped } = this.plan
    if (!isFirst) return false
    const { onePhase, plainOnePhase, isInProcess, batchBytes } = this.context.commitOptions
    if (isInProcess) return onePhase || this.#commitEffects !== undefined
    const isPlain = !isStamped && reads === undefined && this.#commitEffects === undefined && this.#leases.length === 0
    return plainOnePhase && isPlain && !forUpdateTs && !markDepth && !minCommitTs && this.#bytes < batchBytes
  }

  /**
   * The hot path: one request commits. It is tried once; if its answer is lost, a shared store is asked again, in phases, because
   * the repeat finds what the first one has done.
   */
  async #runAtOnce(): Promise<Timestamp> {
    const { startTs, primary, mutations, reads } = this.plan
    this.#mayHaveDecided = true
    const beganMs = performance.now()
    try {
      const { onePcCommitTs } = await this.prewrite(
        onePhaseRequest(startTs, primary, mutations, reads, this.#commitEffects),
      )
      if (onePcCommitTs !== undefined) return this.#committed('1pc', onePcCommitTs)
    } catch (error) {
      if (!isUncertain(error)) throw error
      if (this.context.commitOptions.isInProcess) throw new Undetermined(startTs, error)
      this.#isUncertain = true
      this.#lostSinceMs = beganMs
      return this.#hasTime ? this.#runInPhases() : this.#failed(error, [mutations])
    }
    const batches = [mutations]
    this.#mayHoldLocks = true
    try {
      return await this.#commitLocked(batches)
    } catch (error) {
      return await this.#failed(error, batches)
    } finally {
      this.#stopHeartbeat()
    }
  }

  async #runInPhases(): Promise<Timestamp> {
    if (this.#needsKeys) {
      try {
        await this.#chooseCommitTs()
      } catch (error) {
        return this.#failed(error, [this.given.mutations.filter(({ keyAt }) => keyAt === undefined)])
      }
    }
    const batches = this.#batches()
    const kind = this.#kindOf(batches)
    try {
      if (batches.length > 1) this.#mayHoldLocks = true
      if (kind !== 'one_pc') this.#keepAlive()
      const answers = await this.#prewriteAll(batches, kind)
      const onePcCommitTs = answers[0]?.onePcCommitTs
      if (onePcCommitTs !== undefined) return this.#committed('1pc', onePcCommitTs)
      this.#mayHoldLocks = true
      const asyncCommitTs = commitTsOf(answers)
      if (kind === 'async' && asyncCommitTs !== undefined) {
        this.context.inBackground(this.#commitRest(batches, asyncCommitTs))
        return this.#committed('async', asyncCommitTs)
      }
      return await this.#commitLocked(batches)
    } catch (error) {
      if (!this.#mayBeJudgedLater(error)) return await this.#failed(error, batches)
    } finally {
      this.#stopHeartbeat()
    }
    this.#checkLeasesAtCommit()
    return this.#runInPhases()
  }

  // ---- Versionstamped puts

  /** A store that does not commit in one phase has to lock the keys before the transaction has a commit_ts. */
  get #needsKeys(): boolean {
    const { onePhase, isInProcess } = this.context.commitOptions
    return this.given.isStamped === true && !(onePhase && isInProcess)
  }

  /**
   * Chooses a commit_ts ahead of the oracle, whose keys can be locked. If the oracle is still below it once they are, nobody has read
   * at or above it, and whoever will meets the locks. The transaction commits when the oracle has reached it.
   */
  async #chooseCommitTs(): Promise<void> {
    if (this.#commitEffects !== undefined) throw stampsWithEffects()
    const { api, stampLead } = this.context
    const now = await this.#surviving(false, async () => api.tso(1))
    const commitAt = now + timestampFromMs(stampLead.ms)
    const stamped = new Set<string>()
    let { primary } = this.given
    const mutations = new Map<string, PrewriteMutation>()
    for (const mutation of this.given.mutations) {
      const { keyAt, ...rest } = mutation
      const key = keyAt === undefined ? mutation.key : keyAt(commitAt)
      if (keyAt !== undefined) stamped.add(keyText(key))
      if (rest.key === primary) primary = key
      mutations.set(keyText(key), keyAt === undefined ? mutation : { ...rest, key })
    }
    this.#commitAt = commitAt
    this.#stampedKeys = stamped
    this.#chosenMs = performance.now()
    this.plan = { ...this.given, mutations: [...mutations.values()], primary, minCommitTs: commitAt }
  }

  /** @throws KvError `write_conflict` if others may have read at it before all keys were locked, or the oracle does not reach it. */
  async #whenReached(commitAt: Timestamp): Promise<Timestamp> {
    const { api, stampLead } = this.context
    const endsAt = performance.now() + stampLead.ms + WAIT_FOR_ORACLE_MS_MAX
    const now = (): Promise<Timestamp> => this.#surviving(false, async () => api.tso(1))
    const tookMs = performance.now() - this.#chosenMs
    let nowTs = await now()
    if (nowTs >= commitAt) {
      stampLead.wasTooShort()
      throw this.#passed(commitAt)
    }
    stampLead.wasEnough(tookMs)
    while (nowTs < commitAt) {
      if (performance.now() > endsAt) throw this.#passed(commitAt)
      await sleep(Math.ceil((commitAt - nowTs) / LOGICAL_PER_MS), this.plan.signal)
      nowTs = await now()
    }
    return commitAt
  }

  #passed(commitAt: Timestamp): KvError<'write_conflict'> {
    const { primary } = this.plan
    const detail = `no commit is possible any more at ${commitAt}, which the versionstamped keys were made of`
    return writeConflict(primary, this.plan, { startTs: commitAt, commitTs: 0 }, 'optimistic', detail)
  }

  /** Starts with the first prewrite, because the commit may wait for other locks, a slow network or a slow store. */
  #keepAlive(): void {
    // The locks of a pessimistic transaction have their own heartbeat already.
    if (this.plan.forUpdateTs !== undefined || this.#heartbeat !== undefined) return
    const { api, commitOptions } = this.context
    const { startedAt } = this.plan
    const ttlMs = lockTtlMs(this.#bytes, 0)
    this.#heartbeat = new Heartbeat(api, this.plan, { startedAt, ttlMs, ageMaxMs: commitOptions.heartbeatMaxMs })
  }

  #stopHeartbeat(): void {
    this.#heartbeat?.stop()
    this.#heartbeat = undefined
  }

  get #bytes(): number {
    this.#bytesKnown ??= this.plan.mutations.reduce((sum, mutation) => sum + pairBytes(mutation), 0)
    return this.#bytesKnown
  }

  /**
   * True when a server whose store cannot commit in one phase has refused the commit effects, and all of them are leases, which
   * can be checked at the commit_ts instead. Not when the transaction attaches keys to them.
   */
  #mayBeJudgedLater(error: unknown): boolean {
    if (!isKvError(error, 'not_supported') || !hasLeasesOnly(this.#commitEffects)) return false
    return this.plan.mutations.every(({ leaseFence = 0 }) => leaseFence === 0)
  }

  /** The first batch contains the primary. With commit effects there is one batch, which is empty if nothing is written. */
  #batches(): PrewriteMutation[][] {
    const { mutations, primary } = this.plan
    const commitEffects = this.#commitEffects
    if (mutations.length === 0 && commitEffects !== undefined) return [[]]
    const primaryText = keyText(primary)
    const isPrimary = ({ key }: PrewriteMutation): boolean => keyText(key) === primaryText
    const first = mutations.find(isPrimary)
    if (first === undefined) throw new Error(`the primary ${printKey(primary)} is not among the mutations`)
    const batches: PrewriteMutation[][] = [[]]
    let bytes = 0
    for (const mutation of [first, ...mutations.filter((one) => one !== first)]) {
      if (bytes >= this.context.commitOptions.batchBytes && commitEffects === undefined) {
        batches.push([])
        bytes = 0
      }
      batches.at(-1)?.push(mutation)
      bytes += pairBytes(mutation)
    }
    return batches
  }

  #kindOf(batches: readonly (readonly PrewriteMutation[])[]): Kind {
    const { mutations, reads } = this.plan
    if (this.#leases.length > 0 || this.#commitAt !== undefined) return 'two_pc'
    const { onePhase, plainOnePhase } = this.context.commitOptions
    const isOneRequest = batches.length === 1 && (onePhase || (plainOnePhase && reads === undefined))
    if (this.#commitEffects !== undefined || isOneRequest) return 'one_pc'
    const keyBytes = mutations.reduce((sum, { key }) => sum + key.length, 0)
    // Under async commit the prewrites alone decide, so reads could not be validated between prewrite and commit.
    const isSmall =
      mutations.length <= this.context.commitOptions.asyncCommitKeysMax && keyBytes <= ASYNC_COMMIT_KEY_BYTES_MAX
    return isSmall && reads === undefined ? 'async' : 'two_pc'
  }

  // ---- Prewrite

  async #prewriteAll(batches: readonly (readonly PrewriteMutation[])[], kind: Kind): Promise<PrewriteAnswer[]> {
    const { primary, mutations, startTs, startedAt, forUpdateTs, grantedAt, reads, markDepth, minCommitTs } = this.plan
    const commitEffects = this.#commitEffects
    // When an earlier commit was left undetermined, only the repetition of its request tells the outcome.
    const signal = this.#isUncertain ? undefined : this.plan.signal
    const isFirstTry = this.plan.isFirst && !this.#isUncertain
    const bytes = this.#bytes
    const primaryText = keyText(primary)
    const keys = mutations.map(({ key }) => key).filter((key) => keyText(key) !== primaryText)
    const deadline = performance.now() + this.plan.lockWaitMs
    const common = {
      primary,
      startTs,
      forUpdateTs,
      txnSize: mutations.length,
      linearizable: true,
      ...(kind === 'one_pc'
        ? { tryOnePc: true, reads, ...(commitEffects === undefined ? {} : { commitEffects }) }
        : {}),
      ...(kind === 'async' ? { useAsyncCommit: true } : {}),
      ...(this.#leases.length > 0 && this.context.commitOptions.checksLeasesAtCommit
        ? { commitEffects: { leases: this.#leases, leasesCheckedAtCommit: true } }
        : {}),
      ...(markDepth ? { markDepth } : {}),
      ...(minCommitTs ? { minCommitTs } : {}),
    }
    let isStopped = false // After one batch has failed the others need not start.
    const tried = new Set<readonly PrewriteMutation[]>()
    this.#locked = isFirstTry ? new Set() : undefined
    const tryBatch = async (batch: readonly PrewriteMutation[], index: number): Promise<PrewriteAnswer> => {
      if (isStopped) return {}
      try {
        const answer = await this.#surviving(kind !== 'two_pc', () => {
          const isFirst = isFirstTry && !tried.has(batch)
          tried.add(batch)
          if (!isFirst) this.#locked?.add(batch) // An earlier copy, whose answer was lost, may have locked.
          return this.prewrite({
            ...common,
            mutations: batch,
            lockTtl: lockTtlMs(bytes, performance.now() - startedAt),
            ...(grantedAt === undefined
              ? {}
              : {
                  pessimisticActions: batch.map(
                    (mutation) => this.plan.actionOf?.(mutation.key) ?? this.#actionOf(mutation),
                  ),
                  forUpdateTsMax: batch.map(({ key }) => grantedAt(key) || (forUpdateTs ?? 0)),
                }),
            ...(kind === 'async' && index === 0 ? { secondaries: keys } : {}),
            ...(isFirst ? { isFirst } : {}),
          })
        })
        this.#locked?.add(batch)
        return answer
      } catch (error) {
        if (isUncertain(error)) {
          this.#mayHoldLocks = true
          this.#locked?.add(batch)
        }
        // A copy of the request that is still on the network may be granted although this one was refused.
        // Nothing can rule that out for a transaction without rows.
        const { isInProcess, plainOnePhase } = this.context.commitOptions
        if (kind !== 'two_pc' && !isInProcess && !plainOnePhase && this.#hasRows && mayChange(error))
          this.#isUncertain = true
        throw error
      }
    }
    const prewriteBatch = async (batch: readonly PrewriteMutation[], index: number): Promise<PrewriteAnswer> => {
      try {
        const waitMs = Math.max(0, deadline - performance.now())
        return await this.context.resolver.resolving(waitMs, () => tryBatch(batch, index), signal)
      } catch (error) {
        isStopped = true
        throw error
      }
    }
    return allOf(batches, prewriteBatch)
  }

  /**
   * Repeats a call whose answer is lost.
   * @param decides the call may commit the transaction, so a lost answer leaves the outcome open.
   */
  async #surviving<T>(decides: boolean, call: () => Promise<T>): Promise<T> {
    if (decides) this.#mayHaveDecided = true
    const backoff = new Backoff()
    for (let triesLeft = this.context.commitOptions.triesMax - 1; ; triesLeft--) {
      const beganMs = performance.now()
      try {
        const answer = await call()
        this.#lostSinceMs = undefined
        return answer
      } catch (error) {
        if (!isUncertain(error)) throw error
        this.#lostSinceMs ??= beganMs
        if (decides) this.#isUncertain = true
        if (decides && this.#isUnnamed) throw this.#undetermined(error) // A repeat would put another key.
        if (triesLeft <= 0 || !this.#hasTime) throw error
        await backoff.wait()
      }
    }
  }

  get #hasTime(): boolean {
    if (this.#lostSinceMs === undefined) return true
    return performance.now() - this.#lostSinceMs < this.context.commitOptions.repeatMsMax
  }

  // ---- Commit

  #commitLocked(batches: readonly (readonly PrewriteMutation[])[]): Promise<Timestamp> {
    this.#keepAlive() // A commit in one phase may have fallen back to two.
    if (this.#commitEffects === undefined) return this.#commitPrimary(batches)
    return Promise.reject(
      new Error('the server prewrote a transaction with commit effects, which it has to commit or refuse'),
    )
  }

  async #commitPrimary(batches: readonly (readonly PrewriteMutation[])[]): Promise<Timestamp> {
    const { startTs, primary, reads, lockWaitMs, signal, stages, markDepth } = this.plan
    const counted = { ...(stages && { stages }), ...(markDepth && { markDepth }) }
    const backoff = new Backoff()
    for (let tries = 0; ; tries++) {
      signal?.throwIfAborted()
      const commitTs = await this.#nextCommitTs()
      if (reads !== undefined || this.#leases.length > 0) {
        const { keys, ranges } = reads ?? { keys: [], ranges: [] }
        // Runs again for each new commit_ts: a lease may have changed owner in between.
        const leases = this.#leases.length > 0 ? { leases: this.#leases } : {}
        const validate = (): Promise<void> =>
          this.context.api.validateReads({ keys, ranges, startTs, commitTs, ...leases })
        await this.context.resolver.resolving(lockWaitMs, () => this.#surviving(false, validate), signal)
      }
      signal?.throwIfAborted()
      try {
        const [first, rest] = this.#firstCommitted(batches)
        const keys = first.map(({ key }) => key)
        const named = rest.length > 0 && this.#areNamed ? { txnKeys: this.plan.mutations.map(({ key }) => key) } : {}
        const committed = await this.#surviving(true, () =>
          this.context.api.commit({ keys, startTs, commitTs, primary, ...named, ...counted }),
        )
        if (rest.length > 0) this.context.inBackground(this.#commitRest(rest, committed.commitTs))
        return this.#committed('2pc', committed.commitTs)
      } catch (error) {
        // A reader has raised the lock's min_commit_ts; a read in the future raises it above the clock.
        if (!isKvError(error, 'commit_ts_expired')) throw error
        if (this.#commitAt !== undefined) throw this.#passed(commitTs)
        if (tries > 0) await backoff.wait(Number.POSITIVE_INFINITY, signal)
      }
    }
  }

  #nextCommitTs(): Promise<Timestamp> {
    if (this.#commitAt !== undefined) return this.#whenReached(this.#commitAt)
    return this.#surviving(false, async () => this.context.api.tso(1))
  }

  /** Nobody has locked the key of a versionstamped put. */
  #actionOf({ key, keyAt }: PrewriteMutation): PessimisticAction {
    return keyAt !== undefined || this.#stampedKeys?.has(keyText(key)) ? 'constraint' : actionOf(key)
  }

  /** A client's commit request is not longer than a prewrite. */
  get #areNamed(): boolean {
    const { commitsPrimaryAlone, batchBytes } = this.context.commitOptions
    return commitsPrimaryAlone || this.plan.mutations.reduce((sum, { key }) => sum + key.length, 0) <= batchBytes
  }

  #firstCommitted([first = [], ...others]: readonly (readonly PrewriteMutation[])[]): [
    first: readonly PrewriteMutation[],
    rest: readonly (readonly PrewriteMutation[])[],
  ] {
    if (!this.context.commitOptions.commitsPrimaryAlone || first.length <= 1) return [first, others]
    return [first.slice(0, 1), [first.slice(1), ...others]]
  }

  #committed(kind: CommitKind, commitTs: Timestamp): Timestamp {
    const { stages, startTs } = this.plan
    if (stages !== undefined) stages.txn = { startTs, commitTs, kind }
    return commitTs
  }

  /**
   * The transaction is committed already. If this fails, readers of the other keys resolve the locks at the primary.
   */
  async #commitRest(batches: readonly (readonly PrewriteMutation[])[], commitTs: Timestamp): Promise<void> {
    const { startTs, primary, markDepth } = this.plan
    const deep = markDepth ? { markDepth } : undefined
    const commit = (keys: Uint8Array[]): Promise<unknown> =>
      this.#surviving(false, () => this.context.api.commit({ keys, startTs, commitTs, primary, ...deep }))
    await allOf(batches, (batch) => commit(batch.map(({ key }) => key)))
  }

  // ---- Failure

  /**
   * Finds out the outcome of an undetermined commit; if there is none yet, rolls the transaction back. A transaction
   * without rows can be neither asked for nor rolled back, so its prewrite is repeated.
   * @throws Undetermined; KvError `write_conflict` (`self_rolled_back`) when the transaction is rolled back.
   */
  async findOutcome(): Promise<Timestamp> {
    this.#isUncertain = true
    this.#lostSinceMs = undefined
    if (this.#isUnnamed) throw this.#undetermined(undefined)
    if (!this.#hasRows) return this.#runInPhases()
    return this.#failed(new Undetermined(this.plan.startTs, undefined), this.#batches())
  }

  /** Finds out the outcome if it is uncertain, and cleans up after a failed transaction. */
  async #failed(error: unknown, batches: readonly (readonly PrewriteMutation[])[]): Promise<Timestamp> {
    if (this.#isUnnamed && error instanceof Undetermined) throw error
    if (!this.#hasRows)
      throw this.#isUncertain && !isRefusedForGood(error, this.plan) ? this.#undetermined(error) : error
    if (this.#isUncertain) {
      if (!this.#hasTime) throw this.#undetermined(error)
      const commitTs = await this.#end(error)
      if (commitTs > 0) {
        this.context.inBackground(this.#commitRest(batches, commitTs))
        return commitTs
      }
    }
    if (this.#mayHoldLocks || this.#isUncertain) {
      const locked = this.#isUncertain ? undefined : this.#locked
      this.context.inBackground(this.#rollBack(locked ? batches.filter((batch) => locked.has(batch)) : batches))
    }
    if (error === this.plan.signal?.reason) throw error
    // The same transaction would fail again for what the store has refused, so it is not said to have lost a race.
    const isLost = isUncertain(error) && !(error instanceof KvError && error.isLasting)
    throw isLost && this.#isUncertain ? this.#rolledBack(error) : error
  }

  /** @returns the commit_ts, or 0 once the transaction is rolled back. @throws Undetermined */
  async #end(cause: unknown): Promise<Timestamp> {
    const { primary, startTs } = this.plan
    try {
      return await this.#surviving(false, () => this.context.resolver.end(primary, startTs))
    } catch {
      throw this.#undetermined(cause)
    }
  }

  /** The primary is the key of a versionstamped put, which only the answer to the commit tells. */
  get #isUnnamed(): boolean {
    const { isStamped, mutations, primary } = this.plan
    return isStamped === true && mutations.some(({ key, keyAt }) => keyAt !== undefined && key === primary)
  }

  /** False for a transaction with commit effects only, which leaves neither locks nor write records. */
  get #hasRows(): boolean {
    return this.plan.mutations.length > 0
  }

  #undetermined(cause: unknown): Undetermined {
    return new Undetermined(this.plan.startTs, cause)
  }

  #rolledBack(cause: unknown): KvError<'write_conflict'> {
    const { primary, startTs } = this.plan
    const detail = `the transaction at ${startTs} was rolled back, since the answers to its commit were lost`
    const itself = { startTs, commitTs: startTs }
    return writeConflict(primary, this.plan, itself, 'self_rolled_back', detail, { cause })
  }

  /**
   * The primary goes first: its record ends the transaction. A token limited to prefixes is not allowed to end the
   * other locks before that.
   */
  async #rollBack([first = [], ...others]: readonly (readonly PrewriteMutation[])[]): Promise<void> {
    const { startTs } = this.plan
    const rollBack = (batch: readonly PrewriteMutation[]): Promise<void> =>
      this.#surviving(false, () => this.context.api.rollback({ keys: batch.map(({ key }) => key), startTs }))
    try {
      await rollBack(first)
    } finally {
      await allOf(others, rollBack)
    }
  }
}

/**
 * The default action. Reserved rows have no pessimistic lock, so they are checked for conflicts. The row of an attached
 * key needs no check: the key itself is locked, so nobody else has written its row.
 */
function actionOf(key: Uint8Array): PessimisticAction {
  if (isAttachedKey(key)) return 'skip'
  return isReserved(key) ? 'constraint' : 'do'
}

/** The server would have to know the keys when it takes the prewrite with the commit effects. */
function stampsWithEffects(): KvError {
  const detail =
    'a client that coordinates its transaction cannot send riders with versionstamped puts: use POST /v1/txn'
  return invalid('versionstamp', detail)
}

function hasLeasesOnly(commitEffects: CommitEffects | undefined): boolean {
  return commitEffects !== undefined && primaryOf(commitEffects) === undefined
}

/** The commit_ts of async commit: the highest of all keys. undefined when a key fell back to two-phase commit. */
function commitTsOf(answers: readonly PrewriteAnswer[]): Timestamp | undefined {
  let commitTs = 0
  for (const { minCommitTs } of answers) {
    if (minCommitTs === undefined) return undefined
    commitTs = Math.max(commitTs, minCommitTs)
  }
  return commitTs
}

/** Runs up to `PARALLEL_MAX` at once. Throws the first failure, but only after all others have ended. */
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

/**
 * True when a later copy of the refused request may succeed. Locks go away; a committed conflict never does. A notification
 * that is acknowledged or superseded may be made again, unless another run has committed since the claim.
 */
function mayChange(error: unknown): boolean {
  if (isAckRefused(error)) return error.fields.retryable !== true
  if (isKvError(error, 'write_conflict')) return error.fields.conflictCommitTs === 0
  return isKvError(error, 'key_locked') || isKvError(error, 'pessimistic_lock_not_found')
}

/**
 * True when an earlier copy of this refused request, whose answer was lost, cannot have committed either. The refusal names
 * the last run of the cell. If that run began before this transaction and committed after it began, the two ran side by
 * side, so the other one is the only one of them that commits. If it began later, it may have followed this one.
 */
function isRefusedForGood(error: unknown, { startTs }: CommitPlan): boolean {
  if (!isAckRefused(error)) return false
  const { conflictStartTs, conflictCommitTs } = error.fields
  return conflictStartTs < startTs && conflictCommitTs > startTs
}
