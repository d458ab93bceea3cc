import type { Timestamp } from '../../../timestamp.js'

/** A copy older than this part of the time for which it serves is read again in the background. */
const FRESH_PART = 1 / 4

/**
 * This process's copy of something that seldom changes, and that takes effect `span` after a timestamp which was taken once it
 * stood. So a copy whose read began when the timestamp `#asOf` had been handed out serves commits up to that much above `#asOf`.
 * No clock is involved: both are timestamps of the oracle.
 */
export class CopyAsOf {
  readonly #load: () => Promise<void>
  #asOf: Timestamp = -1
  #loading: Promise<void> | undefined

  constructor(
    readonly span: Timestamp,
    load: () => Promise<void>,
  ) {
    this.#load = load
  }

  /** @returns undefined when the copy serves `ts`, which is up to `ahead` above its timestamp. */
  serving(ts: Timestamp, ahead: Timestamp): undefined | Promise<void> {
    if (ts > this.#asOf + ahead) return this.readAt(ts)
    if (ts > this.#asOf + this.span * FRESH_PART) this.#reload(ts).catch(() => {}) // In the background.
    return undefined
  }

  /** Fulfilled when the read of the copy began after `ts` had been handed out. */
  async readAt(ts: Timestamp): Promise<void> {
    while (ts > this.#asOf) await this.#reload(ts)
  }

  /** Fulfilled when the read of the copy began after this call. */
  async refresh(last: Timestamp): Promise<void> {
    await this.#loading?.catch(() => {})
    await this.#reload(last)
  }

  #reload(ts: Timestamp): Promise<void> {
    this.#loading ??= this.#read(ts).finally(() => {
      this.#loading = undefined
    })
    return this.#loading
  }

  async #read(ts: Timestamp): Promise<void> {
    await this.#load()
    this.#asOf = Math.max(this.#asOf, ts)
  }
}
