import { ENTRY_BYTES, entryCost } from '../bytes/answer-size.js'
import { keyText } from '../bytes/key-text.js'
import { requirePassed } from '../coordinator/above-safe-point.js'
import { isAckRefused } from '../coordinator/ack-refused.js'
import { Backoff } from '../coordinator/backoff.js'
import { Committer, type TransactionContext } from '../coordinator/committer.js'
import type { Resolver } from '../coordinator/lock-resolver.js'
import { Transaction, type TransactionOptions } from '../coordinator/transaction.js'
import { isUncertain } from '../coordinator/uncertain.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { isKvError } from '../errors/kv-error.js'
import { type LazySignal, requireWanted, signalOf, stagesOf } from '../event-loop/lazy-signal.js'
import { timed } from '../event-loop/stages.js'
import { runSliced } from '../event-loop/time-slicer.js'
import { DEFAULT_LIMITS, type Limits } from '../limits.js'
import { outcomeKey } from '../percolator/codec/outcome-key.js'
import type { LatchSet } from '../store/latch-set.js'
import type { Store } from '../store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { type Check, checksFailed, failedChecks } from './check.js'
import { mayChange, requireLeases, seeingFence } from './commit-effects.js'
import { CountedReads } from './counted-reads.js'
import { COMMIT_TS_OF_ROW, type Once } from './idempotency.js'
import type { OneShot, OneShotAnswer, OneShotDone } from './one-shot.js'
import { isRangeOp, type Op, runOps } from './op.js'
import { type Outcomes, refuseRunning } from './outcomes.js'
import { type OneShotKeys, type Plan, planOf } from './plan.js'
import { SyncCommit, Tried } from './sync-commit.js'

export class OneShots {
  readonly #store: Store
  readonly #context: TransactionContext
  /** For single tries: its resolver leaves locks alone. */
  readonly #tryContext: TransactionContext
  readonly #isOnePhase: boolean
  readonly #outcomes: Outcomes
  readonly #syncCommit: SyncCommit
  readonly #bytesMax: number

  /** @param limits bounds of interactive transactions. They apply to requests that can write more than they contain. */
  constructor(
    store: Store,
    context: TransactionContext,
    outcomes: Outcomes,
    limits: Pick<Limits, 'txnBytesMax'> = DEFAULT_LIMITS,
  ) {
    this.#bytesMax = limits.txnBytesMax
    this.#store = store
    this.#outcomes = outcomes
    this.#context = context
    this.#isOnePhase = store.traits.onePhaseCommit
    this.#syncCommit = new SyncCommit(store, outcomes)
    const { api, commitOptions, inBackground, effectsAsRows, attaches, stampLead } = context
    const resolver = withoutResolving(context.resolver, this.#isOnePhase)
    this.#tryContext = { api, commitOptions, inBackground, resolver, effectsAsRows, attaches, stampLead }
  }

  /**
   * Runs a transaction under the latches of its keys, so it rarely conflicts. A client that coordinates its own
   * transactions can still cause a conflict; the transaction then starts again at a new start_ts.
   * @throws KvError `precondition_failed`, `already_exists`, `invalid_argument` (the value of a counter is no
   *   number), `write_conflict` after `maxRetries` or, for a refused acknowledgement, at once, `key_locked` after
   *   `lockWaitMs`; the errors of commit effects (`PrewriteRequest.commitEffects`); the errors of `Outcomes`.
   */
  run(request: OneShot): Promise<Once<OneShotAnswer>> {
    const stages = stagesOf(request.signal)
    const beganMs = stages === undefined ? 0 : performance.now()
    return new Promise((resolve, reject) => {
      request.handover?.begin()
      const isTaken = this.runSync(request, (error, answer) => {
        stages?.since('writeMs', beganMs)
        const { startTs, commitTs } = answer ?? {}
        if (stages !== undefined && startTs !== undefined && commitTs !== undefined)
          stages.txn ??= { startTs, commitTs, kind: '1pc' }
        if (answer === undefined) reject(error)
        else resolve({ answer, isReplayed: false })
      })
      if (isTaken) return
      request.handover?.undo()
      resolve(this.runAsync(request))
    })
  }

  /** @param signalOfLate of a request that has none yet, for one that has to wait after all. */
  runSync(request: OneShot, done: OneShotDone, signalOfLate?: () => LazySignal): boolean {
    if (this.#isOnePhase) return this.#syncCommit.run(request, done)
    return this.#syncCommit.run(request, (error, answer) => {
      if (!(error instanceof Tried)) return done(error, answer)
      const late = signalOfLate === undefined ? request : { ...request, signal: signalOfLate() }
      this.#goOn(late, error).then(
        (answer) => done(undefined, answer),
        (problem: unknown) => done(problem, undefined),
      )
    })
  }

  async #goOn(request: OneShot, { txn, results, error }: Tried): Promise<OneShotAnswer> {
    if (isUncertain(error)) {
      const committer = new Committer(this.#context, { ...txn, startedAt: performance.now(), lockWaitMs: 0 })
      try {
        return { startTs: txn.startTs, commitTs: await committer.findOutcome(), results }
      } catch (outcome) {
        if (!isConflict(outcome)) throw error
      }
    }
    request.handover?.undo()
    return (await this.runAsync(request)).answer
  }

  /** `run`, for a transaction that `runSync` did not take. */
  runAsync(request: OneShot): Promise<Once<OneShotAnswer>> {
    const planned = runSliced(planOf(request))
    return planned instanceof Promise
      ? planned.then((plan) => this.#runPlanned(request, plan))
      : this.#runPlanned(request, planned)
  }

  async #runPlanned(request: OneShot, plan: Plan): Promise<Once<OneShotAnswer>> {
    const { idempotency, signal } = request
    if (idempotency === undefined) return this.#runTries(request, plan)
    try {
      return await this.#runTries(request, plan)
    } catch (error) {
      // Another request under the key may have been faster. And while writes are refused, a repeat still gets the stored answer.
      const mayBeDone = isConflict(error) || isKvError(error, 'storage_unavailable')
      const earlier = mayBeDone ? await this.#outcomes.find<OneShotAnswer>(idempotency, signal) : undefined
      return earlier ?? refuseRunning(error)
    }
  }

  async #runTries(request: OneShot, { keys, latchSet }: Plan): Promise<Once<OneShotAnswer>> {
    const stages = stagesOf(request.signal)
    const isReading = keys.read.size > 0 || request.ops.some(isRangeOp)
    const isPlain = !isReading && request.idempotency === undefined && request.commitEffects === undefined
    let blind = !this.#isOnePhase && isPlain && !keys.stamps && keys.written.size > 0 ? { isUsed: false } : undefined
    let backoff: Backoff | undefined
    let passed = 0
    for (let retriesLeft = request.maxRetries; ; retriesLeft--) {
      try {
        return await this.#context.resolver.resolving(
          request.lockWaitMs,
          () => {
            const beganMs = stages === undefined ? 0 : performance.now()
            return this.#holding(latchSet, (prewrite, inBackground) => {
              if (latchSet !== undefined) stages?.since('latchMs', beganMs)
              const context = { ...this.#tryContext, inBackground }
              return isReading || latchSet === undefined
                ? this.#tryCounted(request, keys, context, prewrite)
                : this.#try(request, keys, context, undefined, prewrite, blind)
            })
          },
          request.signal,
        )
      } catch (error) {
        if (isAckRefused(error)) throw error
        // The conflict may be with a version that was there when the request came, so that it is not counted as a retry.
        if (blind?.isUsed && isConflict(error)) retriesLeft++
        blind = undefined
        if (!isConflict(error)) {
          if (this.#isFencePassed(request)) throw error
          requirePassed(error, ++passed)
          retriesLeft++ // The safe point has passed the start_ts. That is no conflict and does not count as a retry.
          continue
        }
        if (retriesLeft <= 0) throw error
        backoff ??= new Backoff()
        await backoff.wait(Number.POSITIVE_INFINITY, signalOf(request.signal))
      }
    }
  }

  /**
   * Answers when `body` does, but holds the latches until its background work is done: before that, the next
   * transaction of these keys would only meet the locks of this one.
   */
  #holding<T>(
    latchSet: LatchSet | undefined,
    body: (prewrite: Store['prewrite'], inBackground: TransactionContext['inBackground']) => Promise<T>,
  ): Promise<T> {
    const { exclusive, prewrite } = this.#store
    const { inBackground } = this.#context
    if (latchSet === undefined) return body(prewrite, inBackground)
    if (this.#isOnePhase) return exclusive(latchSet, (prewrite) => body(prewrite, inBackground))
    return new Promise((resolve, reject) => {
      const held = exclusive(latchSet, async (prewrite) => {
        let rest: Promise<unknown> | undefined
        const both = (work: Promise<unknown>): void => {
          inBackground(work)
          rest = Promise.allSettled([rest, work])
        }
        await body(prewrite, both).then(resolve, reject)
        if (rest !== undefined) await endOf(rest, REST_MS_MAX)
      })
      held.catch(reject)
    })
  }

  /** True when the safe point has passed a fence, which a newer start_ts does not change. */
  #isFencePassed({ commitEffects }: OneShot): boolean {
    return commitEffects?.acks?.some(({ fence }) => fence < this.#store.safePoint) ?? false
  }

  /** Counts the values that were read against the answer budget, until the write is on disk. */
  async #tryCounted(
    request: OneShot,
    keys: OneShotKeys,
    context: TransactionContext,
    prewrite: Store['prewrite'],
  ): Promise<Once<OneShotAnswer>> {
    const reads = new CountedReads(this.#store.answers, request.caller)
    try {
      return await this.#try(request, keys, context, reads, prewrite)
    } finally {
      reads.end()
    }
  }

  async #try(
    { checks, ops, isolation = 'snapshot', commitEffects, signal, handover, idempotency }: OneShot,
    keys: OneShotKeys,
    context: TransactionContext,
    counted: CountedReads | undefined,
    prewrite: Store['prewrite'],
    blind?: { isUsed: boolean },
  ): Promise<Once<OneShotAnswer>> {
    const stages = stagesOf(signal)
    requireWanted(signal)
    const unproved = blind && this.#store.blindTs?.()
    if (blind !== undefined) blind.isUsed = unproved !== undefined
    const ts = unproved ?? (mayWrite(keys) ? this.#store.tso(1) : this.#store.readTs())
    let startTs = typeof ts === 'number' ? ts : await ts
    const mayStartAhead =
      isolation === 'snapshot' && !keys.stamps && commitEffects === undefined && !ops.some(isRangeOp)
    const ownKey = idempotency && outcomeKey(idempotency.key)
    if (mayStartAhead && this.#isOnePhase && checks.every(({ key }) => keys.written.has(keyText(key)))) {
      const ahead = this.#store.newestAhead(allKeys(checks, ops, ownKey))
      startTs = startAbove(typeof ahead === 'number' ? ahead : await ahead, startTs)
    }
    const options = OPTIONS[isolation]
    const bound = keys.deletesRange ? { ...options, bytesMax: this.#bytesMax } : options
    const txn = new Transaction(context, startTs, bound)
    if (keys.read.size > 0 || ownKey !== undefined) {
      const toRead = ownKey === undefined ? keys.read.values() : [...keys.read.values(), ownKey]
      const found = await timed(stages, 'readMs', txn.prefetch([...toRead]))
      if (idempotency !== undefined && ownKey !== undefined) {
        const earlier = this.#outcomes.replayed<OneShotAnswer>(found.get(keyText(ownKey)), idempotency, signal)
        if (earlier !== undefined) return earlier
      }
      for (const version of found.values())
        counted?.prefetched.grow(version === undefined ? ENTRY_BYTES : entryCost(version.value))
      const version = (key: Uint8Array) => found.get(keyText(key))
      const failed = failedChecks(checks, version)
      if (failed.length > 0) throw checksFailed(failed, await this.#store.leases.lost(commitEffects?.leases ?? []))
      // Latches of this process keep checks true until the commit, except for versions that expire. When other
      // processes write too, or there are no latches, only validation does.
      const isLatched = this.#isOnePhase && !keys.deletesRange
      for (const { key } of checks) {
        const found = version(key)
        if (!isLatched || found?.expireTs !== undefined) txn.requireUnchanged(key, found)
      }
    }
    const ran = runOps(txn, ops, startTs, counted?.answer, signal)
    const results = ran instanceof Promise ? await timed(stages, 'readMs', ran) : ran
    const isWriting = txn.writes > 0 || mayChange(commitEffects ?? {})
    const stored = isWriting || storesAnyway(keys) ? idempotency : undefined
    if (!isWriting) await requireLeases(this.#store.leases, commitEffects ?? {})
    const answerAt = (commitTs: Timestamp): OneShotAnswer =>
      isWriting ? { startTs, commitTs, results } : { startTs, results }
    if (!isWriting && stored === undefined) return { answer: answerAt(startTs), isReplayed: false }
    const row = stored && this.#outcomes.rowOf(stored, answerAt(COMMIT_TS_OF_ROW))
    if (row !== undefined) await txn.put(row.key, row.value)
    handover?.begin()
    try {
      const timedPrewrite: Store['prewrite'] = (request) => prewrite({ ...request, stages })
      const answer = answerAt(await txn.commit(timedPrewrite, seeingFence(commitEffects), undefined, stages))
      if (stored !== undefined && row !== undefined) this.#outcomes.stored(stored, row)
      return { answer, isReplayed: false }
    } catch (error) {
      handover?.undo()
      // Runs inside `exclusive`, which translates engine errors.
      throw error instanceof Undetermined ? error.cause : error
    }
  }
}

/**
 * In two phases, a server that stalled for longer than the TTL of its locks may find itself rolled back by another client.
 */
function isConflict(error: unknown): boolean {
  return isKvError(error, 'write_conflict') || isKvError(error, 'txn_lock_not_found')
}

const REST_MS_MAX = 200

async function endOf(work: Promise<unknown>, atMostMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, atMostMs)
  })
  await Promise.race([work, late])
  clearTimeout(timer)
}

function mayWrite({ written, deletesRange, stamps }: OneShotKeys): boolean {
  return written.size > 0 || deletesRange || stamps
}

/**
 * A key that was absent, or a range that was empty, may be filled before a repeat, which must leave it alone. So the
 * outcome is stored though nothing is written.
 */
function storesAnyway({ deletesRange, touches }: OneShotKeys): boolean {
  return deletesRange || touches
}

function* allKeys(checks: readonly Check[], ops: readonly Op[], ownKey: Uint8Array | undefined): Generator<Uint8Array> {
  if (ownKey !== undefined) yield ownKey
  for (const { key } of checks) yield key
  for (const op of ops) if (!isRangeOp(op)) yield op.key
}

/**
 * A client may commit a key in the future. A write of that key must then start above that version.
 *
 * Other transactions may still commit below such a start_ts. So it is not used where reads would then belong to different
 * moments: serializable transactions, checks of keys that are not written, and scans. Two-phase commit cannot use it, because the
 * oracle gives the commit_ts. Commit effects must not commit ahead of the clock. All of these conflict until the clock has passed
 * the version.
 */
function startAbove(ahead: Timestamp, startTs: Timestamp): Timestamp {
  return ahead < TIMESTAMP_MAX - 2 ? Math.max(startTs, ahead + 1) : startTs
}

const OPTIONS = {
  snapshot: { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0, isFirst: true },
  serializable: { mode: 'optimistic', isolation: 'serializable', lockWaitMs: 0, isFirst: true },
} as const satisfies Record<string, TransactionOptions>

/**
 * Must not resolve locks inside a try: with one-phase commit, resolving takes latches that the try holds and would deadlock. A
 * try throws `key_locked` instead. Its locks are resolved between tries, and the next try has a newer start_ts.
 */
function withoutResolving(resolver: Resolver, isOnePhase: boolean): Resolver {
  return {
    resolving: async (_waitMs, body) => body(),
    resolve: async () => false,
    end: async (primary, startTs) => {
      if (isOnePhase) throw new Error('asked to end a transaction under latches')
      return resolver.end(primary, startTs)
    },
  }
}
