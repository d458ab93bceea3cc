import { ENTRY_BYTES, entryCost } from '../bytes/answer-size.js'
import { keyText } from '../bytes/key-text.js'
import { onePhaseRequest } from '../coordinator/one-phase-request.js'
import { atHand } from '../event-loop/after.js'
import { runToEnd } from '../event-loop/time-slicer.js'
import type { GetAnswer, PrewriteMutation, PrewriteRequest, Version } from '../percolator/api.js'
import { outcomeKey } from '../percolator/codec/outcome-key.js'
import { primaryOf } from '../percolator/commit-effects.js'
import { primaryAmong } from '../percolator/stamped-key.js'
import type { AnswerLease } from '../store/answer-budget.js'
import type { PrewriteSync, Store } from '../store/store.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../timestamp.js'
import { requireChecks } from './check.js'
import { effectCount, effectLatches, mayChange, seeingFence } from './commit-effects.js'
import { CountedReads } from './counted-reads.js'
import { COMMIT_TS_OF_ROW } from './idempotency.js'
import type { OneShot, OneShotDone } from './one-shot.js'
import { isAttaching, isRangeOp, isRead, isStamped, type Op, type OpResult, runOps } from './op.js'
import type { Outcomes } from './outcomes.js'
import { planOf } from './plan.js'
import { type Found, SyncWrites } from './sync-writes.js'

/** Limit on checks, ops and commit effects together. Larger transactions take several turns. */
const ITEMS_MAX = 64
const READS_MAX = 16
/**
 * A checked version that expires sooner than this after the start may be gone at commit_ts, so such a check needs validation.
 */
const EXPIRES_SOON = timestampFromMs(1000)

const NOTHING_READ: Found = new Map()

/**
 * What a shared store has refused, as another server may have been faster, or has not answered. The error says whether it is certain
 * that nothing was done (`isUncertain`).
 */
export class Tried {
  constructor(
    readonly txn: Pick<PrewriteRequest, 'startTs' | 'primary' | 'mutations'>,
    readonly results: readonly OpResult[],
    readonly error: unknown,
  ) {}
}

export class SyncCommit {
  readonly #store: Store
  readonly #outcomes: Outcomes

  constructor(store: Store, outcomes: Outcomes) {
    this.#store = store
    this.#outcomes = outcomes
  }

  /**
   * Runs a small writing transaction if no other request holds or has locked its keys and its reads need no wait.
   * @param done called once, in a later turn, with the answer when it is on disk, or with an error; with `Tried` on a shared store.
   *   Must not throw.
   * @returns false, having done nothing, when the transaction would have to wait or its prewrite is refused.
   * @throws KvError the refusal of a check or an op: `precondition_failed`, `already_exists`, `invalid_argument`,
   *   `payload_too_large`, `overloaded`. Nothing is written then.
   */
  run(request: OneShot, done: OneShotDone): boolean {
    const { checks, ops, commitEffects, signal } = request
    const { onePhaseCommit, plainOnePhaseCommit } = this.#store.traits
    if (!onePhaseCommit && !(plainOnePhaseCommit && isBlind(request))) return false
    const effects = commitEffects === undefined ? 0 : effectCount(commitEffects)
    if (ops.length + effects === 0) return false
    if (ops.length + checks.length + effects > ITEMS_MAX) return false
    if (typeof signal === 'object' && signal.aborted) return false
    if (ops.some(isAttaching)) return false // The keys of the lease may have to be counted.
    if (ops.length === 0 && !mayChange(commitEffects ?? {})) return false // The transaction commits nothing.
    return checks.length === 0 && !ops.some(isRead) ? this.#write(request, done) : this.#readAndWrite(request, done)
  }

  #write(request: OneShot, done: OneShotDone): boolean {
    const { ops } = request
    const latchSet = { written: writtenBy(request), read: [], isAlone: false }
    return this.#store.exclusiveSync(latchSet, (prewrite) => {
      const startTs = this.#startTs()
      if (startTs === undefined || this.#mayBeRepeat(request, startTs)) return false
      return this.#commit(prewrite, startTs, runSync(ops, NOTHING_READ, startTs), request, done)
    })
  }

  #readAndWrite(request: OneShot, done: OneShotDone): boolean {
    const { checks, ops, isolation, commitEffects } = request
    // Validation of other reads takes several turns, and a scan needs a snapshot.
    if (isolation === 'serializable' || ops.some(isRangeOp)) return false
    const { keys, latchSet } = runToEnd(planOf(request))
    if (latchSet === undefined || keys.read.size > READS_MAX) return false
    const counted = new CountedReads(this.#store.answers, request.caller)
    let isTaken = false
    try {
      isTaken = this.#store.exclusiveSync(latchSet, (prewrite) => {
        const startTs = this.#startTs()
        const found = startTs === undefined ? undefined : this.#read(keys.read, startTs, counted)
        if (startTs === undefined || found === undefined || this.#mayBeRepeat(request, startTs)) return false
        const version = (key: Uint8Array) => found.get(keyText(key))
        requireChecks(checks, version, () => atHand(this.#store.leases.lost(commitEffects?.leases ?? [])))
        if (checks.some(({ key }) => (version(key)?.expireTs ?? TIMESTAMP_MAX) - startTs < EXPIRES_SOON)) return false
        const ran = runSync(ops, found, startTs, counted.answer)
        if (ran.mutations.length === 0 && !mayChange(commitEffects ?? {})) return false // All its keys to touch are absent.
        return this.#commit(prewrite, startTs, ran, request, (error, answer) => {
          counted.end()
          done(error, answer)
        })
      })
    } finally {
      if (!isTaken) counted.end()
    }
    return isTaken
  }

  #startTs(): Timestamp | undefined {
    if (!this.#store.traits.onePhaseCommit) return this.#store.blindTs?.()
    const startTs = this.#store.tso(1)
    if (typeof startTs === 'number') return startTs
    startTs.catch(() => {}) // The general path asks again.
    return undefined
  }

  /** True when an outcome is stored under the request's key, or that cannot be known at once. */
  #mayBeRepeat({ idempotency }: OneShot, ts: Timestamp): boolean {
    if (idempotency === undefined) return false
    const answer = this.#readSync(outcomeKey(idempotency.key), ts)
    return answer === undefined || (answer.found && !this.#outcomes.isFree(answer))
  }

  /** @param request has commit effects, if nothing was written. */
  #commit(
    prewrite: PrewriteSync,
    startTs: Timestamp,
    { mutations, results }: OpsDone,
    { commitEffects, idempotency }: OneShot,
    done: OneShotDone,
  ): boolean {
    const row = idempotency && this.#outcomes.rowOf(idempotency, { startTs, commitTs: COMMIT_TS_OF_ROW, results })
    const all = row === undefined ? mutations : [...mutations, row]
    const primary = primaryAmong(all) ?? primaryOf(commitEffects ?? {})
    if (primary === undefined) throw new Error('a transaction that writes has neither writes nor commit effects')
    const request = onePhaseRequest(startTs, primary, all, undefined, seeingFence(commitEffects))
    return prewrite(request, (error, answer) => {
      const commitTs = answer?.onePcCommitTs // Present in every answer: only locks of its own would need two phases.
      if (commitTs === undefined)
        return done(this.#store.traits.onePhaseCommit ? error : new Tried(request, results, error), undefined)
      if (idempotency !== undefined && row !== undefined) this.#outcomes.stored(idempotency, row)
      done(undefined, { startTs, commitTs, results })
    })
  }

  #readSync(key: Uint8Array, ts: Timestamp): GetAnswer | undefined {
    const answer = this.#store.get({ key, ts })
    if (!(answer instanceof Promise)) return answer
    answer.catch(() => {}) // The general path reads it again.
    return undefined
  }

  #read(keys: ReadonlyMap<string, Uint8Array>, ts: Timestamp, { prefetched }: CountedReads): Found | undefined {
    const versions = new Map<string, Version | undefined>()
    for (const [text, key] of keys) {
      const answer = this.#readSync(key, ts)
      if (answer === undefined) return undefined
      prefetched.grow(answer.found ? entryCost(answer.value) : ENTRY_BYTES)
      versions.set(text, answer.found ? answer : undefined)
    }
    return versions
  }
}

/** Keys of single-key ops, of commit effects and of the outcome row, by `keyText`. */
function writtenBy({ ops, commitEffects, idempotency }: OneShot): readonly string[] {
  const own = idempotency === undefined ? [] : [keyText(outcomeKey(idempotency.key))]
  const [first] = ops
  if (ops.length === 1 && first !== undefined && !isRangeOp(first) && !isStamped(first) && commitEffects === undefined)
    return [keyText(first.key), ...own]
  const written = new Set<string>()
  for (const op of ops) if (!isRangeOp(op) && !isStamped(op)) written.add(keyText(op.key))
  for (const text of effectLatches(commitEffects ?? {}, ops)) written.add(text)
  return [...written, ...own]
}

interface OpsDone {
  readonly results: readonly OpResult[]
  readonly mutations: readonly PrewriteMutation[]
}

/** @param ops at most `ITEMS_MAX`, without ranges. */
function runSync(ops: readonly Op[], found: Found, startTs: Timestamp, answer?: AnswerLease): OpsDone {
  const txn = new SyncWrites(found, startTs)
  const results = atHand(runOps(txn, ops, startTs, answer))
  return { results, mutations: txn.mutations() }
}

/** Nothing but writes: what a store without calculated timestamps can take at once. */
function isBlind({ checks, ops, commitEffects, idempotency }: OneShot): boolean {
  return (
    checks.length === 0 &&
    commitEffects === undefined &&
    idempotency === undefined &&
    !ops.some((op) => isRead(op) || isStamped(op))
  )
}
