import type { ObserverState } from './rules/observers-api.js'

/** Only the workers that were seen last are listed. */
const WORKERS_MAX = 256
const FORGOTTEN_AFTER_MS = 10 * 60 * 1000

interface Worker {
  seenMs: number
  seenAtMs: number
}

/** The workers of one observer that have claimed lately. Names are for people: two workers may share one. */
export class Workers {
  /** In the order in which they were seen last. */
  readonly #workers = new Map<string, Worker>()

  /** @param nowMs monotonic. @param unixMs for showing. */
  seen(name: string, nowMs: number, unixMs: number): void {
    const worker = this.#workers.get(name) ?? { seenMs: 0, seenAtMs: 0 }
    worker.seenMs = nowMs
    worker.seenAtMs = unixMs
    this.#workers.delete(name)
    this.#workers.set(name, worker)
    const [oldest] = this.#workers.keys()
    if (this.#workers.size > WORKERS_MAX && oldest !== undefined) this.#workers.delete(oldest)
  }

  /** @param claimed number of claims per worker name. */
  list(claimed: ReadonlyMap<string, number>, nowMs: number): ObserverState['workers'] {
    for (const [name, { seenMs }] of this.#workers)
      if (seenMs + FORGOTTEN_AFTER_MS <= nowMs && !claimed.has(name)) this.#workers.delete(name)
    return [...this.#workers].map(([worker, { seenAtMs }]) => ({ worker, claimed: claimed.get(worker) ?? 0, seenAtMs }))
  }
}
