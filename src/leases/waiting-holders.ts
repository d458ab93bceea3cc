import { MinHeap, type Ranked } from '../bytes/min-heap.js'
import { signalOf } from '../event-loop/lazy-signal.js'
import { onAbort } from '../event-loop/on-abort.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

export interface Asking {
  /** Name of the lease. */
  readonly name: string
  readonly request: LeaseRequest
  readonly resolve: (state: LeaseState) => void
  readonly reject: (error: unknown) => void
}

export type Queue = Set<WaitingHolder>

/** Ranked by the end of its wait. */
export interface WaitingHolder extends Asking, Ranked {
  readonly queue: Queue
  /** The wait is over: the request is answered as soon as the lease is decided. */
  isOver: boolean
  stopListening?: () => void
}

export class WaitingHolders {
  readonly #byEnd = new MinHeap<WaitingHolder>()
  #size = 0

  get size(): number {
    return this.#size
  }

  /** When the next wait ends. */
  get nextMs(): number | undefined {
    return this.#byEnd.first?.rank
  }

  add(queue: Queue, asking: Asking, endsAtMs: number): WaitingHolder {
    const { name, request, resolve, reject } = asking
    const isOver = (request.waitMs ?? 0) === 0
    const waiting: WaitingHolder = { name, request, resolve, reject, queue, isOver, rank: 0, place: -1 }
    queue.add(waiting)
    this.#size++
    if (!isOver) this.#byEnd.set(waiting, endsAtMs)
    return waiting
  }

  /**
   * Call when the request has to wait for longer than for the disk. @throws the error of creating the signal: the server allows
   * no more waiting requests.
   */
  stay(waiting: WaitingHolder): void {
    if (waiting.stopListening !== undefined) return
    const signal = signalOf(waiting.request.signal)
    if (signal === undefined) return
    const leave = (): void => {
      this.remove(waiting)
      waiting.reject(signal.reason)
    }
    if (signal.aborted) leave()
    else waiting.stopListening = onAbort(signal, leave)
  }

  /** The caller must answer the request. */
  remove(waiting: WaitingHolder): void {
    if (!waiting.queue.delete(waiting)) return
    this.#size--
    this.#byEnd.delete(waiting)
    waiting.stopListening?.()
  }

  /** Up to `max` requests whose waits have ended, each returned once. They stay in their queues. */
  endedBy(nowMs: number, max: number): WaitingHolder[] {
    const ended: WaitingHolder[] = []
    while (ended.length < max) {
      const { first } = this.#byEnd
      if (first === undefined || first.rank > nowMs) break
      this.#byEnd.delete(first)
      first.isOver = true
      ended.push(first)
    }
    return ended
  }
}
