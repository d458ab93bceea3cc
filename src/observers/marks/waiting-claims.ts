import { MinHeap, type Ranked } from '../../bytes/min-heap.js'
import { type LazySignal, signalOf } from '../../event-loop/lazy-signal.js'
import { onAbort } from '../../event-loop/on-abort.js'
import type { Notification } from '../rules/observers-api.js'

export interface WaitingClaim extends Ranked {
  readonly worker: string
  readonly limit: number
  readonly leaseMs: number
  readonly values: boolean
  readonly signal: LazySignal | undefined
  readonly resolve: (notifications: Notification[] | Promise<Notification[]>) => void
  readonly reject: (error: unknown) => void
  stopListening?: () => void
}

export class WaitingClaims {
  readonly #claims = new Set<WaitingClaim>()
  readonly #times = new MinHeap<WaitingClaim>()

  get size(): number {
    return this.#claims.size
  }

  get first(): WaitingClaim | undefined {
    for (const claim of this.#claims) return claim
    return undefined
  }

  get nextMs(): number | undefined {
    return this.#times.first?.rank
  }

  add(claim: WaitingClaim, untilMs: number): void {
    this.#claims.add(claim)
    this.#times.set(claim, untilMs)
  }

  /** Ends the wait when the client hangs up. Claims that need not wait never create the signal. */
  listen(claim: WaitingClaim): void {
    const signal = this.#claims.has(claim) ? signalOf(claim.signal) : undefined
    if (signal === undefined) return
    const end = (): void => {
      this.delete(claim)
      claim.resolve([])
    }
    if (signal.aborted) {
      end()
      return
    }
    claim.stopListening = onAbort(signal, end)
  }

  delete(claim: WaitingClaim): void {
    this.#claims.delete(claim)
    this.#times.delete(claim)
    claim.stopListening?.()
  }

  /** Answers the claims whose wait is over. */
  endUntil(nowMs: number): void {
    for (let claim = this.#times.first; claim !== undefined && claim.rank <= nowMs; claim = this.#times.first) {
      this.delete(claim)
      claim.resolve([])
    }
  }

  /** @param error absent: the claims get an empty answer. */
  endAll(error?: unknown): void {
    for (const claim of [...this.#claims]) {
      this.delete(claim)
      if (error === undefined) claim.resolve([])
      else claim.reject(error)
    }
  }
}
