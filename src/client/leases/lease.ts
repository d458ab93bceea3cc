import { isKvError, KvError } from '../../errors/kv-error.js'
import { backgroundTimer } from '../../event-loop/background-timer.js'
import { once } from '../../event-loop/once.js'
import type { LeaseState, LeasesApi } from '../../leases/rules/leases-api.js'
import type { Timestamp } from '../../timestamp.js'
import { termOf } from './lease-term.js'

export interface LeaseBackend {
  readonly leases: Pick<LeasesApi, 'put' | 'remove'>
  during<T>(call: () => Promise<T>): Promise<T>
  /** Milliseconds of a monotonic clock. */
  now(): number
}

export interface Grant {
  readonly state: LeaseState
  /** When its request was sent, by `now` of the backend. */
  readonly sentAtMs: number
}

/** Parts of the TTL. */
const PAUSE_FIRST = 1 / 60
const PAUSE_MAX = 1 / 6
const TRY = 1 / 3

/**
 * A lease that this program holds, from `db.lease`. It is renewed in the background until it is released or lost. Transactions
 * that depend on it (`leases`) commit only while it is held.
 */
export class Lease {
  readonly name: string
  readonly holder: string
  /** Timestamp of the grant. Later holders have later fences. */
  readonly fence: Timestamp
  readonly ttlMs: number
  readonly #backend: LeaseBackend
  readonly #onEnd: (lease: Lease) => void
  readonly #abort = new AbortController()
  readonly #abandon = new AbortController()
  #expiresAtMs: number
  #endsAtMs = 0
  #stopEnd: () => void = () => {}
  #stopRenewal: () => void = () => {}
  #pauseMs = 0
  /** The error of the last attempt to renew it. */
  #failure: unknown
  /** Whether the server has said that this grant is over. */
  #isGone = false

  /** @internal @param onEnd called once, when the lease cannot be relied on any more. */
  constructor(backend: LeaseBackend, { state, sentAtMs }: Grant, onEnd: (lease: Lease) => void) {
    const { name, holder, fence, ttlMs, expiresAtMs } = state
    this.name = name
    this.holder = holder
    this.fence = fence
    this.ttlMs = ttlMs
    this.#expiresAtMs = expiresAtMs
    this.#backend = backend
    this.#onEnd = onEnd
    this.#holdFrom(sentAtMs)
  }

  /** By the server's clock, unless it is renewed again. */
  get expiresAt(): Date {
    return new Date(this.#expiresAtMs)
  }

  /**
   * Aborted before another holder may be granted the lease, and when it is released. The reason is a KvError
   * `precondition_failed`. A program that was stopped for a while may notice it late, so its writes must depend on the lease.
   */
  get signal(): AbortSignal {
    this.#checkEnd()
    return this.#abort.signal
  }

  /** @internal Milliseconds for which the lease may be relied on, by this program's clock, unless it is renewed. */
  get leftMs(): number {
    return this.signal.aborted ? 0 : Math.max(0, this.#endsAtMs - this.#backend.now())
  }

  /**
   * Releases the lease, and aborts its signal. Resolves when the server has released it, or it was lost before. Further calls do
   * nothing.
   * @throws the error of the request; then the lease ends by itself, or a further call releases it.
   */
  async release(): Promise<void> {
    this.#end(new KvError('precondition_failed', `the lease ${this.name} was released`, { lease: this.name }))
    await this.#giveBack()
  }

  /** @internal Ends the request of `release`; its caller has stopped waiting. */
  abandon(): void {
    this.#abandon.abort(new KvError('deadline_exceeded', `the lease ${this.name} could not be released in time`, {}))
  }

  readonly #giveBack = once(async (): Promise<void> => {
    if (this.#isGone) return
    const { name, holder, fence } = this
    try {
      await this.#backend.during(() => this.#backend.leases.remove(name, holder, fence, this.#abandon.signal))
    } catch (error) {
      if (!isKvError(error, 'precondition_failed')) throw error
    }
    this.#isGone = true
  })

  /** @internal Called when the server has refused a transaction or a renewal: the lease has another holder, or is free. */
  lose(error: unknown): void {
    this.#isGone = true
    this.#end(error)
  }

  #holdFrom(sentAtMs: number): void {
    const { renewAtMs, endsAtMs } = termOf(sentAtMs, this.ttlMs)
    this.#endsAtMs = endsAtMs
    this.#failure = undefined
    this.#pauseMs = this.ttlMs * PAUSE_FIRST
    this.#watchEnd()
    this.#renewAt(renewAtMs)
  }

  #watchEnd(): void {
    this.#stopEnd()
    this.#stopEnd = this.#at(this.#endsAtMs, () => {
      this.#checkEnd()
      if (!this.#abort.signal.aborted) this.#watchEnd() // Timers may fire a fraction of a millisecond early.
    })
  }

  #at(ms: number, call: () => void): () => void {
    return backgroundTimer(Math.max(0, Math.ceil(ms - this.#backend.now())), call)
  }

  /** Ends the lease if its time is over. */
  #checkEnd(): void {
    if (this.#abort.signal.aborted) return
    if (this.#backend.now() < this.#endsAtMs) return
    const why = this.#failure instanceof Error ? `: ${this.#failure.message}` : ''
    const detail = `the lease ${this.name} was not renewed in time${why}`
    this.#end(new KvError('precondition_failed', detail, { lease: this.name }, { cause: this.#failure }))
  }

  #end(reason: unknown): void {
    if (this.#abort.signal.aborted) return
    this.#stopEnd()
    this.#stopRenewal()
    this.#abort.abort(reason)
    this.#onEnd(this)
  }

  // ---- Renewals, one at a time

  #renewAt(ms: number): void {
    this.#stopRenewal()
    this.#stopRenewal = this.#at(ms, () => void this.#renew())
  }

  async #renew(): Promise<void> {
    this.#checkEnd()
    if (this.#abort.signal.aborted) return
    const { name, holder, fence, ttlMs } = this
    const sentAtMs = this.#backend.now()
    const stop = new AbortController()
    const { signal } = stop
    const tryMs = Math.ceil(ttlMs * TRY)
    const endTry = backgroundTimer(tryMs, () => stop.abort(new Error(`no answer within ${tryMs} ms`)))
    this.#stopRenewal = () => {
      endTry()
      stop.abort()
    }
    try {
      const request = { holder, ttlMs, fence, signal }
      const { expiresAtMs } = await this.#backend.during(() => this.#backend.leases.put(name, request))
      endTry()
      this.#checkEnd()
      if (this.#abort.signal.aborted) return
      this.#expiresAtMs = expiresAtMs
      this.#holdFrom(sentAtMs)
    } catch (error) {
      endTry()
      if (this.#abort.signal.aborted) return
      if (isKvError(error, 'precondition_failed') || isKvError(error, 'lease_held')) return this.lose(error)
      this.#failure = error
      this.#renewAt(this.#backend.now() + this.#pauseMs * (0.5 + Math.random() / 2))
      this.#pauseMs = Math.min(this.#pauseMs * 2, ttlMs * PAUSE_MAX)
    }
  }
}
