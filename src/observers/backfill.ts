import { afterKey } from '../bytes/key-range.js'
import type { LockResolver } from '../coordinator/lock-resolver.js'
import { SnapshotReader } from '../coordinator/snapshot-reader.js'
import { sleep } from '../event-loop/sleep.js'
import { throttle } from '../event-loop/throttle.js'
import { LOCK_WAIT_MS_DEFAULT } from '../limits.js'
import type { Store } from '../store/store.js'
import type { SystemName } from '../store/system-records.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { decodeBackfill, encodeBackfill, nameOfBackfill } from './registration.js'
import type { RegisteredObserver } from './rules/observer.js'

/** Pause after a failed step, or while another server holds the backfill. */
const RETRY_MS = 1000

export interface BackfillSources {
  readonly store: Store
  readonly resolver: LockResolver
  /** Returns a number from 0 to below 1. */
  readonly random: () => number
  /** Aborted when the process stops. */
  readonly signal: AbortSignal
  /** Reports failures of background work. */
  readonly report: (error: unknown) => void
}

/** One page of existing keys, and the record of the backfill before and after they are marked dirty. */
export interface BackfillStep {
  readonly keys: readonly Uint8Array[]
  /** Timestamp at which the keys were read. */
  readonly ts: Timestamp
  readonly record: SystemName
  readonly before: Uint8Array
  /** Last key of the page; undefined on the last page. */
  readonly after: Uint8Array | undefined
}

export interface BackfillWay {
  readonly keysAtATime: number
  /** A server that makes no progress for this long counts as dead, and another one takes over. 0: there is no other server. */
  readonly leaseMs: number
  /** Whether the observer exists and is not paused. */
  readonly mayRun: () => boolean
  /** Marks the clean keys among them dirty. @returns false when the record was not `before`; then nothing was written. */
  readonly advance: (step: BackfillStep) => Promise<boolean>
}

/**
 * Marks the existing keys of an observer's range dirty, page by page, in the background. The record holds the position, so a
 * restart or another server resumes there. Asking for a new backfill replaces the record; removing the observer removes it.
 */
export class Backfill {
  readonly #sources: BackfillSources
  readonly #observer: RegisteredObserver
  readonly #way: BackfillWay
  /** The record as this process last wrote it. */
  #held: Uint8Array | undefined
  #isWanted = false
  #running: Promise<void> | undefined

  constructor(sources: BackfillSources, observer: RegisteredObserver, way: BackfillWay) {
    this.#sources = sources
    this.#observer = observer
    this.#way = way
  }

  get isWanted(): boolean {
    return this.#isWanted
  }

  /** Resolves when this process is not working on it. Never rejects. */
  get idle(): Promise<void> {
    return this.#running ?? Promise.resolve()
  }

  read(record: Uint8Array | undefined): void {
    const progress = record && decodeBackfill(record)
    this.#isWanted = progress?.id === this.#observer.id // A name may be given to a new observer.
    if (progress !== undefined && progress.untilMs <= this.#nowMs()) this.run()
  }

  /** Starts or resumes the work, unless `mayRun` forbids it. */
  run(): void {
    if (!this.#isWanted || this.#running !== undefined || !this.#mayRun) return
    this.#running = this.#goOn().finally(() => {
      this.#running = undefined
      this.run() // `mayRun` may have become true since it was asked.
    })
  }

  get #mayRun(): boolean {
    return !this.#sources.signal.aborted && this.#way.mayRun()
  }

  async #goOn(): Promise<void> {
    const { report, signal } = this.#sources
    for (let mayRun = true; mayRun && this.#isWanted; ) {
      const begin = performance.now()
      mayRun = this.#mayRun
      const isDone = await this.#step(mayRun).catch((error) => report(error))
      if (isDone === true) await throttle(performance.now() - begin, signal)
      else await sleep(RETRY_MS, signal).catch(() => {})
    }
  }

  /** @param isGoingOn false: lets other servers take over at once. @returns false when another server holds the backfill. */
  async #step(isGoingOn: boolean): Promise<boolean> {
    const { store, random } = this.#sources
    const { leaseMs, keysAtATime, advance } = this.#way
    const { id, name } = this.#observer
    const record = nameOfBackfill(name)
    let before = await store.system.get(record)
    const progress = before && decodeBackfill(before)
    this.#isWanted = progress?.id === id
    if (before === undefined || progress?.id !== id) return true
    const isHeld = this.#held !== undefined && Buffer.compare(before, this.#held) === 0
    if (!isHeld && progress.untilMs > this.#nowMs()) return false
    const at = (after: Uint8Array | undefined): Buffer =>
      encodeBackfill({ id, after, untilMs: isGoingOn && leaseMs > 0 ? this.#nowMs() + leaseMs : 0 }, random)
    if (leaseMs > 0 && (!isHeld || !isGoingOn)) {
      this.#held = at(progress.after)
      if (!(await store.system.replace(record, before, this.#held))) return true
      before = this.#held
    }
    if (!isGoingOn) return true
    const { keys, ts } = await this.#keysAfter(progress.after, keysAtATime)
    const after = keys.length < keysAtATime ? undefined : at(keys.at(-1))
    if (await advance({ keys, ts, record, before, after })) this.#held = after
    return true
  }

  async #keysAfter(
    after: Uint8Array | undefined,
    limit: number,
  ): Promise<{ readonly keys: readonly Uint8Array[]; readonly ts: Timestamp }> {
    const { store, resolver, signal } = this.#sources
    const { start, end } = this.#observer.range
    const ts = await store.readTs()
    const reader = new SnapshotReader(store, resolver, ts, { lockWaitMs: LOCK_WAIT_MS_DEFAULT, signal })
    const order = { start: after === undefined ? start : afterKey(after), end, limit, keyOnly: true }
    return { keys: (await reader.scan(order)).pairs.map(({ key }) => key), ts }
  }

  #nowMs(): number {
    return physicalMs(this.#sources.store.time.clock())
  }
}
