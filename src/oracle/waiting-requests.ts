import type { Timestamp } from '../timestamp.js'
import { ASK_COUNT_MAX, type TimestampAnswer, type TimestampAsk } from './timestamp-ask.js'

/** Calls once after `ms`, and never keeps the process running. @returns what ends it. */
export type Timer = (ms: number, call: () => void) => () => void

/** One call that waits for timestamps. It ends once: later endings do nothing. */
export interface WaitingRequest extends TimestampAsk {
  /** Of another server, which asks somebody else when this one does not lead. */
  readonly isForwarded: boolean
  fulfil(answer: TimestampAnswer): void
  dismiss(): void
}

interface Ends {
  readonly resolve: (answer: TimestampAnswer | 'not_leader') => void
  readonly reject: (error: Error) => void
}

/** Requests in the order in which they came, each with a bound on its time. Whoever takes some answers them or puts them back. */
export class WaitingRequests {
  #queue: WaitingRequest[] = []
  /** Those that were taken, too. */
  readonly #open = new Map<WaitingRequest, Ends & { readonly stopTimer: () => void }>()
  #count = 0
  readonly #timer: Timer

  constructor(timer: Timer) {
    this.#timer = timer
  }

  /** Whether all have ended. */
  get isEmpty(): boolean {
    return this.#open.size === 0
  }

  /** Timestamps that are asked for and not handed out. */
  get count(): number {
    return this.#count
  }

  /** @param late makes what the promise rejects with after `ms`. */
  add(ask: TimestampAsk, isForwarded: boolean, ms: number, late: () => Error): Promise<TimestampAnswer | 'not_leader'> {
    return new Promise((resolve, reject) => {
      const request: WaitingRequest = {
        count: ask.count,
        floor: ask.floor,
        isForwarded,
        fulfil: (answer) => this.#close(request)?.resolve(answer),
        dismiss: () => this.#close(request)?.resolve('not_leader'),
      }
      const stopTimer = this.#timer(ms, () => this.#close(request)?.reject(late()))
      this.#open.set(request, { resolve, reject, stopTimer })
      this.#count += request.count
      this.#queue.push(request)
    })
  }

  #close(request: WaitingRequest): Ends | undefined {
    const ends = this.#open.get(request)
    if (ends === undefined) return undefined
    ends.stopTimer()
    this.#open.delete(request)
    this.#count -= request.count
    return ends
  }

  /** The requests that have waited longest and fit into one ask. */
  take(): readonly WaitingRequest[] {
    const queue = this.#queue.filter((request) => this.#open.has(request))
    let count = 0
    const end = queue.findIndex((request) => {
      count += request.count
      return count > ASK_COUNT_MAX
    })
    this.#queue = end === -1 ? [] : queue.slice(end)
    return end === -1 ? queue : queue.slice(0, end)
  }

  /** As far as they have not ended. */
  putBack(requests: readonly WaitingRequest[]): void {
    this.#queue = [...requests.filter((request) => this.#open.has(request)), ...this.#queue]
  }

  /** Sends the requests of other servers back to them. */
  dismissForwarded(): void {
    for (const request of this.#queue) if (request.isForwarded) request.dismiss()
    this.#queue = this.#queue.filter((request) => this.#open.has(request))
  }

  /** Those too that were taken. */
  rejectAll(error: () => Error): void {
    for (const request of [...this.#open.keys()]) this.#close(request)?.reject(error())
    this.#queue = []
  }
}

/** What one ask says for all of them. */
export function askOf(requests: readonly WaitingRequest[]): TimestampAsk {
  let count = 0
  let floor: Timestamp = 0
  for (const request of requests) {
    count += request.count
    floor = Math.max(floor, request.floor)
  }
  return { count, floor }
}

/** Gives each of the requests its part of the answer to `askOf(requests)`. */
export function split(requests: readonly WaitingRequest[], { last, nowMs }: TimestampAnswer): void {
  let end = last - askOf(requests).count
  for (const request of requests) {
    end += request.count
    request.fulfil({ last: request.count === 0 ? last : end, nowMs })
  }
}
