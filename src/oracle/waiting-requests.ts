import type { Timestamp } from '../timestamp.js'
import { ASK_COUNT_MAX, type TimestampAnswer, type TimestampAsk } from './timestamp-ask.js'

/** Calls once after `ms`, without keeping the process alive. @returns a function that cancels. */
export type Timer = (ms: number, call: () => void) => () => void

/** A request for timestamps. Only its first ending counts. */
export interface WaitingRequest extends TimestampAsk {
  /** Sent by another server, which asks elsewhere when this one does not lead. */
  readonly isForwarded: boolean
  fulfil(answer: TimestampAnswer): void
  dismiss(): void
}

interface Ends {
  readonly resolve: (answer: TimestampAnswer | 'not_leader') => void
  readonly reject: (error: Error) => void
}

/** Requests in order of arrival, each with a time limit. A taker of requests answers them or puts them back. */
export class WaitingRequests {
  #queue: WaitingRequest[] = []
  /** Requests that have not ended, taken ones included. */
  readonly #open = new Map<WaitingRequest, Ends & { readonly stopTimer: () => void }>()
  #count = 0
  readonly #timer: Timer

  constructor(timer: Timer) {
    this.#timer = timer
  }

  get isEmpty(): boolean {
    return this.#open.size === 0
  }

  get count(): number {
    return this.#count
  }

  /** @param late makes the error of a request that has waited for `ms`. */
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

  /** @returns the oldest requests that fit into one ask. */
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

  /** Drops the requests that have ended meanwhile. */
  putBack(requests: readonly WaitingRequest[]): void {
    this.#queue = [...requests.filter((request) => this.#open.has(request)), ...this.#queue]
  }

  dismissForwarded(): void {
    for (const request of this.#queue) if (request.isForwarded) request.dismiss()
    this.#queue = this.#queue.filter((request) => this.#open.has(request))
  }

  /** Rejects taken requests too. */
  rejectAll(error: () => Error): void {
    for (const request of [...this.#open.keys()]) this.#close(request)?.reject(error())
    this.#queue = []
  }
}

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
