import { MinHeap, type Ranked } from '../bytes/min-heap.js'
import { signalOf } from '../event-loop/late-signal.js'
import { onAbort } from '../event-loop/on-abort.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

/** A request for a lease, and where its answer goes. */
export interface Asking {
  /** Of the lease. */
  readonly name: string
  readonly request: LeaseRequest
  readonly resolve: (state: LeaseState) => void
  readonly reject: (error: unknown) => void
}

/** Those that wait for one lease, in order of arrival. */
export type Queue = Set<WaitingHolder>

/** Ranked by the end of its wait. */
export interface WaitingHolder extends Asking, Ranked {
  readonly queue: Queue
  /** It waits no longer: it is answered as soon as the lease can be judged. */
  isOver: boolean
  stopListening?: () => void
}

/** Requests that wait: for leases that others hold, or for the disk. */
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

  /** It has to wait for longer than for the disk. @throws what asking for the signal throws: the server lets no more requests wait. */
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

  /** Whoever calls this answers it. */
  remove(waiting: WaitingHolder): void {
    if (!waiting.queue.delete(waiting)) return
    this.#size--
    this.#byEnd.delete(waiting)
    waiting.stopListening?.()
  }

  /** Up to `max` of those whose waits have ended, each once. They stay in their queues. */
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
