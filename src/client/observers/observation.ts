import { keyText } from '../../bytes/key-text.js'
import { Backoff } from '../../coordinator/backoff.js'
import type { Coordinator } from '../../coordinator/coordinator.js'
import type { Transaction, TransactionOptions } from '../../coordinator/transaction.js'
import { CLAIM_LIMIT_MAX, RUN_ERROR_BYTES_MAX } from '../../limits.js'
import type { Notification, ObserversApi, Release } from '../../observers/rules/observers-api.js'
import type { Timestamp } from '../../timestamp.js'
import { batchGetValues } from '../batch-get.js'
import type { As } from '../bytes.js'
import type { During } from '../db-backend.js'
import { runOnce } from '../run-transaction.js'
import { OpenTxn, type Txn } from '../txn.js'
import { type Change, changeOf } from './change.js'
import { EndedSince, verdictOf } from './verdict.js'

export interface ObservationBackend {
  readonly observers: ObserversApi
  readonly coordinator: Pick<Coordinator, 'begin'>
  readonly during: During
  isAway(error: unknown): boolean
}

export interface ObservationPlan<A extends As> {
  /** Name of the observer. */
  readonly name: string
  readonly worker: string
  readonly concurrency: number
  readonly batch: number
  readonly leaseMs: number
  readonly retries: number
  readonly as: A
  readonly transaction: TransactionOptions
  readonly run: (txn: Txn, changes: readonly Change<A>[]) => unknown
  readonly onError: (error: unknown, change: Change<A> | undefined) => void
}

/** A cell that this worker has claimed. */
interface Held extends Notification {
  /** The server has said that the claim is over. A running transaction may still commit. */
  isLost: boolean
}

type Outcome =
  | { readonly name: 'done' }
  | { readonly name: 'released' }
  /** `lost`: each attempt has lost a race, which does not count as a failed attempt. */
  | { readonly name: 'failed' | 'lost'; readonly error: unknown }

type Failed = Extract<Outcome, { readonly error: unknown }>

const DONE: Outcome = { name: 'done' }
const RELEASED: Outcome = { name: 'released' }

const CLAIM_WAIT_MS = 20_000
/** An empty answer that comes sooner means that the observer is paused, or its server stops. */
const CLAIM_WAIT_MS_MIN = CLAIM_WAIT_MS / 2
/** Pauses while the database is away, or answers at once with nothing. */
const PAUSE_MS_FIRST = 100
const PAUSE_MS_MAX = 5000

export class Observation<A extends As> {
  readonly #backend: ObservationBackend
  readonly #plan: ObservationPlan<A>
  readonly #stop = new AbortController()
  readonly #held = new Map<string, Held>()
  readonly #running = new Set<Promise<void>>()
  /** One signal per pause: Node warns of more than ten listeners on one signal. */
  readonly #pauses = new Set<AbortController>()
  #onFree: () => void = () => {}
  #isExtending = false
  /** The error thrown by `onError`, or of a claim that was refused. */
  #failure: { readonly error: unknown } | undefined

  constructor(backend: ObservationBackend, plan: ObservationPlan<A>) {
    this.#backend = backend
    this.#plan = plan
  }

  /** Claims nothing more. */
  stop(): void {
    this.#stop.abort()
    for (const pause of this.#pauses) pause.abort()
    this.#onFree()
  }

  /** Resolves when it was stopped and every run has ended. */
  async run(): Promise<void> {
    const extending = setInterval(() => void this.#extend(), this.#plan.leaseMs / 3)
    try {
      await this.#claimUntilStopped()
    } catch (error) {
      this.#fail(error)
    }
    while (this.#running.size > 0) await Promise.all(this.#running)
    clearInterval(extending)
    if (this.#failure !== undefined) throw this.#failure.error
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted
  }

  #fail(error: unknown): void {
    this.#failure ??= { error }
    this.stop()
  }

  #report(error: unknown, change?: Change<A>): void {
    try {
      this.#plan.onError(error, change)
    } catch (thrown) {
      this.#fail(thrown)
    }
  }

  // ---- Claims

  async #claimUntilStopped(): Promise<void> {
    const { batch, concurrency } = this.#plan
    let pauses: Backoff | undefined
    while (!this.#isStopped) {
      const free = concurrency - this.#running.size
      if (free === 0) {
        await new Promise<void>((resolve) => {
          this.#onFree = resolve
        })
        continue
      }
      const askedAt = performance.now()
      const claimed = await this.#claim(Math.min(CLAIM_LIMIT_MAX, free * batch))
      if (this.#isStopped) await this.#release(claimed ?? [])
      else if (claimed !== undefined && claimed.length > 0) {
        pauses = undefined
        for (let from = 0; from < claimed.length; from += batch) this.#start(claimed.slice(from, from + batch))
      } else if (claimed === undefined || performance.now() - askedAt < CLAIM_WAIT_MS_MIN) {
        pauses ??= new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
        await this.#pause(pauses)
      }
    }
  }

  /** @returns undefined when the database is away. */
  async #claim(limit: number): Promise<Held[] | undefined> {
    const { name, worker, leaseMs } = this.#plan
    const request = { worker, limit, leaseMs, waitMs: CLAIM_WAIT_MS, values: true, signal: this.#stop.signal }
    try {
      const notifications = await this.#backend.during(() => this.#backend.observers.claim(name, request))
      return notifications.map((notification) => this.#hold(notification))
    } catch (error) {
      if (this.#isStopped) return undefined
      if (!this.#backend.isAway(error)) throw error
      this.#report(error)
      return undefined
    }
  }

  #hold(notification: Notification): Held {
    const text = keyText(notification.key)
    const older = this.#held.get(text)
    if (older !== undefined) older.isLost = true // The server was restarted, and has handed the cell out again.
    const held = { ...notification, isLost: false }
    this.#held.set(text, held)
    return held
  }

  #forget(claims: readonly Held[]): void {
    for (const claim of claims) {
      const text = keyText(claim.key)
      if (this.#held.get(text) === claim) this.#held.delete(text)
    }
  }

  /**
   * Never rejects: the lease of a claim that cannot be released runs out.
   * @param error of a failed attempt.
   */
  async #release(claims: readonly Held[], error?: string): Promise<void> {
    this.#forget(claims)
    const reason = error === undefined ? {} : { error }
    const releases = claims
      .filter(({ isLost }) => !isLost)
      .map(({ key, fence }): Release => ({ key, fence, ...reason }))
    if (releases.length === 0) return
    try {
      await this.#backend.during(() => this.#backend.observers.release(this.#plan.name, releases))
    } catch (failure) {
      this.#report(failure)
    }
  }

  /** After a failure, the next extension may still be in time. */
  async #extend(): Promise<void> {
    const { name, leaseMs } = this.#plan
    const claims = [...this.#held.values()].filter(({ isLost }) => !isLost)
    if (this.#isExtending || claims.length === 0) return
    this.#isExtending = true
    try {
      const lost = await this.#backend.during(() => this.#backend.observers.extend(name, claims, leaseMs))
      for (const { key, fence } of lost) {
        const held = this.#held.get(keyText(key))
        if (held?.fence === fence) held.isLost = true
      }
    } catch (error) {
      this.#report(error)
    } finally {
      this.#isExtending = false
    }
  }

  /** Ends early when the observation is stopped. */
  async #pause(pauses: Backoff): Promise<void> {
    if (this.#isStopped) return
    const pause = new AbortController()
    this.#pauses.add(pause)
    await pauses.wait(Number.POSITIVE_INFINITY, pause.signal).catch(() => {})
    this.#pauses.delete(pause)
  }

  // ---- Runs

  #start(claims: readonly Held[]): void {
    const running = this.#run(claims)
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#running.delete(running)
        this.#onFree()
      })
    this.#running.add(running)
  }

  /** @param claims all of one answer, so that their values are those of the last fence. */
  async #run(claims: readonly Held[]): Promise<void> {
    const [first] = claims
    const outcome = await this.#try(claims, Math.max(...claims.map(({ fence }) => fence)))
    if (outcome.name === 'done') return this.#forget(claims)
    if (outcome.name === 'released') return this.#release(claims)
    if (first !== undefined && claims.length === 1) return this.#failed(first, outcome)
    for (const [index, claim] of claims.entries()) {
      if (this.#isStopped) return this.#release(claims.slice(index))
      await this.#runAlone(claim)
    }
  }

  async #runAlone(claim: Held): Promise<void> {
    const outcome = await this.#try([claim])
    if (outcome.name === 'done') return this.#forget([claim])
    if (outcome.name === 'released') return this.#release([claim])
    return this.#failed(claim, outcome)
  }

  async #failed(claim: Held, { name, error }: Failed): Promise<void> {
    this.#report(error, changeOrNone(claim, this.#plan.as))
    await this.#release([claim], name === 'failed' ? reasonOf(error) : undefined)
  }

  /**
   * Tries transactions until one commits or no further attempt makes sense.
   * @param fence of the first attempt: it begins where the claims were made, with known values. Default: a new timestamp.
   */
  async #try(claims: readonly Held[], fence?: Timestamp): Promise<Outcome> {
    const races = new Backoff()
    const pauses = new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
    let startTs = fence
    for (let left = this.#plan.retries; ; startTs = undefined) {
      const held = claims.filter(({ isLost }) => !isLost)
      if (held.length === 0) return DONE
      try {
        await this.#commit(held, startTs)
        return DONE
      } catch (error) {
        const verdict = verdictOf(error, this.#plan.name, this.#backend.isAway)
        const isAlone = claims.length === 1
        if (verdict === 'drop' && isAlone) return DONE
        if (verdict === 'release' && isAlone) return RELEASED
        if (verdict === 'wait') {
          this.#report(error, changeOrNone(held[0], this.#plan.as))
          await this.#pause(pauses)
          if (this.#isStopped) return RELEASED
        } else if (verdict === 'again' && left-- > 0) await races.wait()
        else return { name: verdict === 'again' ? 'lost' : 'failed', error }
      }
    }
  }

  async #commit(claims: readonly Held[], startTs: Timestamp | undefined): Promise<void> {
    const { name, as, run, transaction: options } = this.#plan
    const { coordinator, during } = this.#backend
    const transaction = await during(() => coordinator.begin(options, startTs))
    const acks = claims.map(({ key, fence }) => ({ observer: name, key, fence }))
    await runOnce(new OpenTxn(transaction, during, { commitEffects: { acks } }), async (txn) => {
      const values = await this.#values(transaction, claims, startTs !== undefined)
      const hasEnded = ({ kind, found }: Held, i: number): boolean =>
        values[i] === undefined && found !== false && kind !== 'delete'
      if (claims.some(hasEnded)) throw new EndedSince('a key has ended since the claim')
      return run(
        txn,
        claims.map((claim, i) => changeOf(claim, values[i], as)),
      )
    })
  }

  /** @param isAtFence the transaction begins at the fence of the claims, at which their values were read. */
  async #values(
    transaction: Transaction,
    claims: readonly Held[],
    isAtFence: boolean,
  ): Promise<(Uint8Array | undefined)[]> {
    const isKnown = ({ found }: Held): boolean => isAtFence && found !== undefined
    const unknown = claims.filter((claim) => !isKnown(claim)).map(({ key }) => key)
    const read =
      unknown.length === 0
        ? []
        : await batchGetValues(unknown, 'bytes', (some) => this.#backend.during(() => transaction.batchGet(some)))
    let next = 0
    return claims.map((claim) => {
      const value = isKnown(claim) ? claim.value : read[next++]
      transaction.preload(claim.key, value && { value })
      return value
    })
  }
}

function changeOrNone<A extends As>(claim: Held | undefined, as: A): Change<A> | undefined {
  try {
    return claim && changeOf(claim, claim.value, as)
  } catch {
    return undefined // The error of the run names the key.
  }
}

/** The server cuts it to its limit. A program may throw values that are not errors. */
function reasonOf(error: unknown): string {
  try {
    const reason = String((error instanceof Error && error.message) || error)
    return reason.slice(0, RUN_ERROR_BYTES_MAX).toWellFormed()
  } catch {
    return 'the run has thrown a value that has no text'
  }
}
