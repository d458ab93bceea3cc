import type { RegisteredObserver } from '../../../observers/rules/observer.js'
import { type Timestamp, timestampFromMs } from '../../../timestamp.js'
import type { Observed } from '../../observed.js'
import { CopyAsOf } from '../layout/copy-as-of.js'

/**
 * This process's copy of the registered observers. A registration takes a timestamp after its record is written, and only commits
 * `registeringMs` above it have to be marked.
 */
export class Registrations {
  readonly registering: Timestamp
  readonly #observed: Observed
  readonly #copy: CopyAsOf
  #load: (() => Promise<readonly RegisteredObserver[]>) | undefined
  #ids: ReadonlySet<Timestamp> = new Set()

  constructor(
    observed: Observed,
    readonly registeringMs: number,
  ) {
    this.#observed = observed
    this.registering = timestampFromMs(registeringMs)
    this.#copy = new CopyAsOf(this.registering, () => this.#read())
  }

  follow(load: () => Promise<readonly RegisteredObserver[]>): Promise<void> {
    this.#load = load
    return this.#copy.refresh(0)
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
    return this.#serving(Math.min(startTs, last), this.registering / 2)
  }

  /**
   * Await before a commit at `commitTs`, which the oracle has observed. @returns undefined when every observer of it is known.
   */
  beforeCommit(commitTs: Timestamp): undefined | Promise<void> {
    return this.#serving(commitTs, this.registering)
  }

  #serving(ts: Timestamp, ahead: Timestamp): undefined | Promise<void> {
    return this.#load === undefined ? undefined : this.#copy.serving(ts, ahead)
  }

  /** Fulfilled when the read of the copy began after `ts` had been handed out. */
  readAt(ts: Timestamp): Promise<void> {
    return this.#copy.readAt(ts)
  }

  /** Fulfilled when the read of the copy began after this call. */
  refresh(last: Timestamp): Promise<void> {
    return this.#copy.refresh(last)
  }

  async #read(): Promise<void> {
    const observers = (await this.#load?.()) ?? []
    const ids = new Set(observers.map(({ id }) => id))
    for (const observer of observers) this.#observed.register(observer)
    for (const id of this.#ids) if (!ids.has(id)) this.#observed.unregister(id)
    this.#ids = ids
  }
}
