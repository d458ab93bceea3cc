import { ENTRY_BYTES, entryCost } from '../bytes/answer-size.js'
import { keyText } from '../bytes/key-text.js'
import { requirePassed } from '../coordinator/above-safe-point.js'
import { isAckRefused } from '../coordinator/ack-refused.js'
import { Backoff } from '../coordinator/backoff.js'
import type { TransactionHome } from '../coordinator/committer.js'
import type { Resolver } from '../coordinator/lock-resolver.js'
import { Transaction, type TransactionOptions } from '../coordinator/transaction.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { isKvError } from '../errors/kv-error.js'
import { requireWanted, signalOf, stagesOf } from '../event-loop/late-signal.js'
import { inSlices } from '../event-loop/slices.js'
import { timed } from '../event-loop/stages.js'
import { DEFAULT_LIMITS, type Limits } from '../limits.js'
import type { PrewriteRequest } from '../percolator/api.js'
import type { Claim } from '../store/claim.js'
import type { Store } from '../store/store.js'
import type { SystemWrite } from '../store/system-records.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { type Check, checksFailed, failedChecks } from './check.js'
import { claimed } from './claimed-prewrite.js'
import { CountedReads } from './counted-reads.js'
import type { Once } from './idempotency.js'
import type { OneShot, OneShotAnswer, OneShotDone } from './one-shot.js'
import { OneTurn } from './one-turn.js'
import { isRangeOp, type Op, runOps } from './op.js'
import type { Outcomes, Stores } from './outcomes.js'
import { type OneShotKeys, type Plan, planOf } from './plan.js'
import { mayChange, requireLeases, seeingFence } from './riders.js'
import type { ClaimOutcome } from './shared-outcomes.js'

/** Transactions that arrive complete in one request: checks, reads and writes. */
export class OneShots {
  readonly #store: Store
  readonly #home: TransactionHome
  /** For single tries: its resolver leaves locks alone. */
  readonly #tryHome: TransactionHome
  readonly #isOnePhase: boolean
  readonly #outcomes: Outcomes
  readonly #oneTurn: OneTurn
  readonly #bytesMax: number

  /** @param limits those of interactive transactions hold where a request can write more than it says itself. */
  constructor(
    store: Store,
    home: TransactionHome,
    outcomes: Outcomes,
    limits: Pick<Limits, 'txnBytesMax'> = DEFAULT_LIMITS,
  ) {
    this.#bytesMax = limits.txnBytesMax
    this.#store = store
    this.#outcomes = outcomes
    this.#home = home
    this.#isOnePhase = store.traits.onePhaseCommit
    this.#oneTurn = new OneTurn(store)
    const { api, commitOptions, inBackground, rides } = home
    const resolver = withoutResolving(home.resolver, this.#isOnePhase)
    this.#tryHome = { api, commitOptions, inBackground, resolver, rides }
  }

  /**
   * Holds the latches of the transaction's keys, so it rarely conflicts. A client that coordinates its own transactions
   * can still cause a conflict; the transaction then starts again at a new start_ts.
   * @throws KvError `precondition_failed`, `already_exists`, `invalid_argument` (increment of a value that is no
   *   number), `write_conflict` after `maxRetries` or, for a refused acknowledgement, at once, `key_locked` after
   *   `lockWaitMs`; the errors of riders (`PrewriteRequest.riders`); the errors of `Outcomes.once`.
   */
  run(request: OneShot): Promise<Once<OneShotAnswer>> {
    const stages = stagesOf(request.signal)
    const beganMs = stages === undefined ? 0 : performance.now()
    return new Promise((resolve, reject) => {
      request.handover?.begin()
      const isTaken = this.runNow(request, (error, answer) => {
        stages?.since('writeMs', beganMs)
        const { startTs, commitTs } = answer ?? {}
        if (stages !== undefined && startTs !== undefined && commitTs !== undefined)
          stages.txn = { startTs, commitTs, kind: '1pc' }
        if (answer === undefined) reject(error)
        else resolve({ answer, isReplayed: false })
      })
      if (isTaken) return
      request.handover?.undo()
      resolve(this.runInTurns(request))
    })
  }

  /** See `OneTurn.run`. */
  runNow(request: OneShot, done: OneShotDone): boolean {
    return this.#oneTurn.run(request, done)
  }

  /** `run`, for a transaction that `runNow` did not take. */
  runInTurns(request: OneShot): Promise<Once<OneShotAnswer>> {
    const planned = inSlices(planOf(request))
    return planned instanceof Promise
      ? planned.then((plan) => this.#runPlanned(request, plan))
      : this.#runPlanned(request, planned)
  }

  #runPlanned(request: OneShot, { keys, claim }: Plan): Promise<Once<OneShotAnswer>> {
    const stages = stagesOf(request.signal)
    const isReading = keys.read.size > 0 || request.ops.some(isRangeOp)
    return this.#outcomes.once(request.idempotency, storesOf(keys), request.signal, async (beside, claimOutcome) => {
      let backoff: Backoff | undefined
      let passed = 0
      for (let retriesLeft = request.maxRetries; ; retriesLeft--) {
        try {
          return await this.#home.resolver.resolving(
            request.lockWaitMs,
            () => {
              const beganMs = stages === undefined ? 0 : performance.now()
              return this.#claiming(claim, (prewrite, inBackground) => {
                if (claim !== undefined) stages?.since('latchMs', beganMs)
                const home = { ...this.#tryHome, inBackground }
                return isReading || claim === undefined
                  ? this.#tryCounted(request, keys, home, prewrite, beside, claimOutcome)
                  : this.#try(request, keys, home, undefined, prewrite, beside, claimOutcome)
              })
            },
            request.signal,
          )
        } catch (error) {
          if (isAckRefused(error)) throw error
          if (!isConflict(error)) {
            if (this.#isFencePassed(request)) throw error
            requirePassed(error, ++passed)
            retriesLeft++ // The safe point has passed the start_ts: not a conflict, so it does not count as a retry.
            continue
          }
          if (retriesLeft <= 0) throw error
          backoff ??= new Backoff()
          await backoff.wait(Number.POSITIVE_INFINITY, signalOf(request.signal))
        }
      }
    })
  }

  /**
   * Answers when `body` does, and holds the claim a little longer, until the work that `body` leaves to the background is
   * done: before that, the next transaction of these keys would only meet the locks of this one.
   */
  #claiming<T>(
    claim: Claim | undefined,
    body: (prewrite: Store['prewrite'], inBackground: TransactionHome['inBackground']) => Promise<T>,
  ): Promise<T> {
    const { exclusive, prewrite } = this.#store
    const { inBackground } = this.#home
    if (claim === undefined) return body(prewrite, inBackground)
    if (this.#isOnePhase) return exclusive(claim, (prewrite) => body(prewrite, inBackground))
    return new Promise((resolve, reject) => {
      const held = exclusive(claim, async (prewrite) => {
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

  /** Whether the safe point has passed a fence. A newer start_ts does not change that. */
  #isFencePassed({ riders }: OneShot): boolean {
    return riders?.acks?.some(({ fence }) => fence < this.#store.safePoint) ?? false
  }

  /** Counts the values that were read against the answer budget, until the write is on disk. */
  async #tryCounted(
    request: OneShot,
    keys: OneShotKeys,
    home: TransactionHome,
    prewrite: Store['prewrite'],
    beside: Beside,
    claimOutcome: Claiming,
  ): Promise<OneShotAnswer> {
    const reads = new CountedReads(this.#store.answers, request.caller)
    try {
      return await this.#try(request, keys, home, reads, prewrite, beside, claimOutcome)
    } finally {
      reads.end()
    }
  }

  /** @param counted undefined when the transaction reads nothing. */
  async #try(
    { checks, ops, isolation = 'snapshot', riders, signal, handover }: OneShot,
    keys: OneShotKeys,
    home: TransactionHome,
    counted: CountedReads | undefined,
    prewrite: Store['prewrite'],
    beside: Beside,
    claimOutcome: Claiming,
  ): Promise<OneShotAnswer> {
    const stages = stagesOf(signal)
    requireWanted(signal)
    const ts = mayWrite(keys) ? this.#store.tso(1) : this.#store.readTs()
    let startTs = typeof ts === 'number' ? ts : await ts
    const mayStartAhead = isolation === 'snapshot' && riders === undefined && !ops.some(isRangeOp)
    const isAhead = this.#store.isWrittenAhead && this.#isOnePhase && mayStartAhead
    if (isAhead && checks.every(({ key }) => keys.written.has(keyText(key))))
      startTs = startAbove(await this.#store.newestAhead(allKeys(checks, ops)), startTs)
    const options = OPTIONS[isolation]
    const bound = keys.deletesRange ? { ...options, bytesMax: this.#bytesMax } : options
    const txn = new Transaction(home, startTs, bound)
    if (keys.read.size > 0) {
      const found = await timed(stages, 'readMs', txn.prefetch([...keys.read.values()]))
      for (const version of found.values())
        counted?.prefetched.grow(version === undefined ? ENTRY_BYTES : entryCost(version.value))
      const version = (key: Uint8Array) => found.get(keyText(key))
      const failed = failedChecks(checks, version)
      if (failed.length > 0) throw checksFailed(failed, await this.#store.leases.lostAt(riders?.leases ?? []))
      // Latches of this process keep checks true until the commit, but for versions that expire. Where others write too, or without
      // latches, only validation does.
      const isLatched = this.#isOnePhase && !keys.deletesRange
      for (const { key } of checks) {
        const found = version(key)
        if (!isLatched || found?.expireTs !== undefined) txn.requireUnchanged(key, found)
      }
    }
    const ran = runOps(txn, ops, startTs, counted?.answer, signal)
    const results = ran instanceof Promise ? await timed(stages, 'readMs', ran) : ran
    if (txn.writes === 0 && !mayChange(riders ?? {})) {
      await requireLeases(this.#store.leases, riders ?? {})
      return { startTs, results }
    }
    const answerAt = (commitTs: Timestamp): OneShotAnswer => ({ startTs, commitTs, results })
    const timedPrewrite = claimed(
      (request) => prewrite({ ...request, stages }),
      claimOutcome && ((txn) => claimOutcome(txn, answerAt(0))),
    )
    const onePhase = (request: PrewriteRequest) =>
      prewrite({ ...request, stages }, beside && (({ onePcCommitTs }) => beside(answerAt(requireOnePc(onePcCommitTs)))))
    handover?.begin()
    try {
      if (this.#isOnePhase) return answerAt(await txn.commit(onePhase, seeingFence(riders), undefined, stages))
      beside?.(answerAt(TIMESTAMP_MAX)) // Refuses an outcome that is too long before anything is written.
      const answer = answerAt(await txn.commit(timedPrewrite, seeingFence(riders), undefined, stages))
      // Only in a store that one process has to itself: see `SharedOutcomes`.
      if (beside !== undefined) await this.#store.system.write(beside(answer))
      return answer
    } catch (error) {
      handover?.undo()
      throw error instanceof Undetermined ? error.cause : error // Inside `exclusive`, which translates engine errors.
    }
  }
}

/** In two phases, a server that stood still for longer than the TTL of its locks finds that somebody has rolled it back. */
function isConflict(error: unknown): boolean {
  return isKvError(error, 'write_conflict') || isKvError(error, 'txn_lock_not_found')
}

/** Longest that a claim is held for work in the background. */
const REST_MS_MAX = 200

/** Fulfilled when `work` has settled, or after `atMostMs`. */
async function endOf(work: Promise<unknown>, atMostMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, atMostMs)
  })
  await Promise.race([work, late])
  clearTimeout(timer)
}

function mayWrite({ written, deletesRange }: OneShotKeys): boolean {
  return written.size > 0 || deletesRange
}

/** A range that had nothing to delete, or a key that was absent, may be there at the repeat, which must leave it alone. */
function storesOf(keys: OneShotKeys): Stores {
  if (keys.deletesRange || keys.touches) return 'all'
  return keys.written.size > 0 ? 'written' : 'nothing'
}

function* allKeys(checks: readonly Check[], ops: readonly Op[]): Generator<Uint8Array> {
  for (const { key } of checks) yield key
  for (const op of ops) if (!isRangeOp(op)) yield op.key
}

/**
 * A client may commit a key in the future. A write of that key must then start above that version.
 *
 * Other transactions may still commit below such a start_ts. So it is not used for serializable transactions, for checks of keys that
 * are not written, and for transactions with scans, whose reads would belong to different moments, nor for two-phase commit, where the
 * oracle gives the commit_ts. Nor is it used with riders, which must not commit ahead of the clock. These conflict until the clock has
 * passed the version.
 */
function startAbove(ahead: Timestamp, startTs: Timestamp): Timestamp {
  return ahead < TIMESTAMP_MAX - 2 ? Math.max(startTs, ahead + 1) : startTs
}

type Claiming = ClaimOutcome<OneShotAnswer> | undefined
type Beside = ((answer: OneShotAnswer) => readonly SystemWrite[]) | undefined

/**
 * A second phase would deadlock on the latches that the transaction holds. 1PC falls back to two phases only when it
 * finds locks of its own transaction, and a first try has none.
 */
function requireOnePc(commitTs: Timestamp | undefined): Timestamp {
  if (commitTs === undefined) throw new Error('a first 1PC prewrite fell back to two phases')
  return commitTs
}

const OPTIONS = {
  snapshot: { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0, isFirst: true },
  serializable: { mode: 'optimistic', isolation: 'serializable', lockWaitMs: 0, isFirst: true },
} as const satisfies Record<string, TransactionOptions>

/**
 * Must not resolve locks inside a try: with one-phase commit, resolving takes latches that the try holds and would
 * deadlock. A try throws `key_locked` instead. Its locks are resolved between tries, and the next try has a newer
 * start_ts.
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
