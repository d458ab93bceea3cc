import type { RegisteredObserver } from '../../../observers/rules/observer.js'
import { type Timestamp, timestampFromMs } from '../../../timestamp.js'
import type { Observed } from '../../observed.js'

/** A copy older than this part of the registration time is read again in the background. */
const FRESH_PART = 1 / 4

/**
 * This process's copy of the registered observers. A registration takes a timestamp after its record is written, and only commits
 * `registeringMs` above it have to be marked. So a copy whose read began when the timestamp `#asOf` had been handed out serves
 * commits up to that much above `#asOf`. No clock is involved: both are timestamps of the oracle.
 */
export class Registrations {
  readonly registering: Timestamp
  readonly #observed: Observed
  #load: (() => Promise<readonly RegisteredObserver[]>) | undefined
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

  follow(load: () => Promise<readonly RegisteredObserver[]>): Promise<void> {
    this.#load = load
    return this.#reload(0)
  }

  /**
   * True when the server that prewrote the transaction's locks knew, after `beforeLocks`, every observer of this commit, and has
   * hinted at its cells.
   */
  isHinted(startTs: Timestamp, commitTs: Timestamp): boolean {
    return commitTs <= startTs + this.registering / 2
  }

  /**
   * Await before hints at locks. @param last the newest timestamp that was handed out.
   * @returns undefined when there is nothing to wait for.
   */
  beforeLocks(startTs: Timestamp, last: Timestamp): undefined | Promise<void> {
    return this.#within(Math.min(startTs, last), this.registering / 2)
  }

  /**
   * Await before a commit at `commitTs`, which the oracle has observed. @returns undefined when every observer of it is known.
   */
  beforeCommit(commitTs: Timestamp): undefined | Promise<void> {
    return this.#within(commitTs, this.registering)
  }

  #within(ts: Timestamp, ahead: Timestamp): undefined | Promise<void> {
    if (this.#load === undefined) return undefined
    if (ts > this.#asOf + ahead) return this.readAt(ts)
    if (ts > this.#asOf + this.registering * FRESH_PART) this.#reload(ts).catch(() => {}) // In the background.
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
    const observers = (await this.#load?.()) ?? []
    const ids = new Set(observers.map(({ id }) => id))
    for (const observer of observers) this.#observed.register(observer)
    for (const id of this.#ids) if (!ids.has(id)) this.#observed.unregister(id)
    this.#ids = ids
    this.#asOf = Math.max(this.#asOf, ts)
  }
}
