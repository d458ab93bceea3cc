import type { SharedObserver } from '../../percolator/shared-cell.js'
import { type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { Observed } from '../observed.js'

/** A copy that is older than this part of the time that a registration takes is read again beside the work. */
const FRESH_PART = 1 / 3

/**
 * This process' copy of the registered observers. Whoever registers one takes a timestamp once its record stands, and only commits that are
 * `registeringMs` above it have to be marked. So a copy whose reading began when the timestamp `#asOf` had been handed out serves
 * commits up to so much above that. No clock decides: both are timestamps of the oracle.
 */
export class Registrations {
  readonly registering: Timestamp
  readonly #observed: Observed
  #load: (() => Promise<readonly SharedObserver[]>) | undefined
  #ids: ReadonlySet<Timestamp> = new Set()
  #asOf: Timestamp = -1
  #loading: Promise<void> | undefined

  constructor(
    observed: Observed,
    readonly registeringMs: number,
  ) {
    this.#observed = observed
    this.registering = timestampFromMs(registeringMs)
  }

  follow(load: () => Promise<readonly SharedObserver[]>): Promise<void> {
    this.#load = load
    return this.#reload(0)
  }

  /**
   * Before a commit at `commitTs`, which the oracle has observed.
   * @returns undefined when every observer of such a commit is known.
   */
  before(commitTs: Timestamp): undefined | Promise<void> {
    if (this.#load === undefined) return undefined
    if (commitTs > this.#asOf + this.registering) return this.readAt(commitTs)
    this.expect(commitTs)
    return undefined
  }

  /** A commit above `ts`, which was handed out, is going to come. */
  expect(ts: Timestamp): void {
    if (this.#load !== undefined && ts > this.#asOf + this.registering * FRESH_PART) this.#reload(ts).catch(() => {})
  }

  /** Fulfilled when the copy was begun after `ts` had been handed out. */
  async readAt(ts: Timestamp): Promise<void> {
    while (ts > this.#asOf) await this.#reload(ts)
  }

  /** Fulfilled when the copy was begun after this call. */
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
    const observers = (await this.#load?.()) ?? []
    const ids = new Set(observers.map(({ id }) => id))
    for (const observer of observers) this.#observed.register(observer)
    for (const id of this.#ids) if (!ids.has(id)) this.#observed.unregister(id)
    this.#ids = ids
    this.#asOf = Math.max(this.#asOf, ts)
  }
}
