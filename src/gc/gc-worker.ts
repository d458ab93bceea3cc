import type { Registry } from '../cluster/registry.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import { sleep } from '../event-loop/sleep.js'
import { GC_LIFE_TIME_MS_DEFAULT, TXN_HOLDS_MS_MAX } from '../limits.js'
import type { Pace, Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { type Collected, collectGarbage, locksBelow, resolveLocks } from './collect-garbage.js'
import type { Pins } from './pins.js'
import { type Holder, type SafePoint, safePointOf } from './safe-point.js'

export interface GcOptions {
  /** How long versions stay readable after they were overwritten; 0: they are collected only when somebody asks. */
  readonly lifeTimeMs: number
  readonly intervalMs: number
}

/** What a collection rests after each of its steps, in times of what the step took: it takes a fifth of the time. */
const REST = 4
/** Where steps take long because others are at work too, it still has to keep up with them. */
const REST_MS_MAX = 20

export interface GcRun extends Collected, SafePoint {
  readonly startedAtMs: number
  readonly durationMs: number
}

export interface GcStatus extends GcOptions {
  readonly isRunning: boolean
  readonly pins: number
  readonly lastRun?: GcRun
}

export interface GcSources {
  readonly store: Store
  readonly pins: Pins
  readonly registry: Registry
  /** start_ts of the transactions that the server keeps open for clients. */
  readonly openTransactions: () => Iterable<Timestamp>
  readonly onError: (error: unknown) => void
}

/** Collects old versions from time to time, and when asked to, one collection at a time. */
export class GcWorker {
  readonly #sources: GcSources
  readonly #options: GcOptions
  readonly #resolver: LockResolver
  readonly #timer: NodeJS.Timeout | undefined
  readonly #abort = new AbortController()
  /** Never rejects. */
  #last: Promise<unknown> = Promise.resolve()
  #running = 0
  #lastRun: GcRun | undefined

  constructor(sources: GcSources, options: GcOptions) {
    this.#sources = sources
    this.#options = options
    this.#resolver = new LockResolver(sources.store)
    if (options.lifeTimeMs > 0) {
      this.#timer = setInterval(() => {
        if (this.#running === 0) this.run(this.wanted()).catch(sources.onError)
      }, options.intervalMs)
      this.#timer.unref()
    }
  }

  get status(): GcStatus {
    const pins = this.#sources.pins.list().length
    return { ...this.#options, isRunning: this.#running > 0, pins, ...(this.#lastRun && { lastRun: this.#lastRun }) }
  }

  /** Where the safe point belongs by the clock. */
  wanted(lifeTimeMs = this.#options.lifeTimeMs || GC_LIFE_TIME_MS_DEFAULT): Timestamp {
    const { store } = this.#sources
    return Math.max(store.safePoint, store.ago(lifeTimeMs))
  }

  /**
   * Collects after those that were asked for before. Transactions that are over lose their locks, those that live, and
   * pins, keep what they may read.
   * @param wanted the safe point, not above the store's clock; it ends up lower where somebody holds it back.
   * @returns undefined: another server collects.
   */
  run(wanted: Timestamp): Promise<GcRun | undefined> {
    this.#running++
    const lead = () => this.#sources.registry.lead('gc', (signal) => this.#run(wanted, signal))
    const run = this.#last.then(lead).finally(() => this.#running--)
    this.#last = run.catch(() => {})
    return run
  }

  /** Ends a collection that runs after its step; what it has not removed the next one does. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#abort.abort()
    await this.#last
  }

  async #run(wanted: Timestamp, leading: AbortSignal): Promise<GcRun> {
    const { store, pins, registry } = this.#sources
    const startedAtMs = Date.now()
    const begin = performance.now()
    await resolveLocks(store, this.#resolver, wanted, store.now())
    const locked = new Set<Timestamp>()
    for await (const locks of locksBelow(store, wanted)) for (const { startTs } of locks) locked.add(startTs)
    const elsewhere = await registry.oldest()
    if (registry.isShared) await pins.reload()
    // One turn of the event loop from here until pins below the safe point are refused.
    const holders: Holder[] = [
      ...pins.holders(),
      ...this.#alive('transaction', this.#sources.openTransactions()),
      ...this.#alive('lock', locked),
      { by: 'transaction', ts: elsewhere },
    ]
    // What others raised the safe point past is lost already, and holds nothing back.
    const decided = safePointOf(
      wanted,
      holders.filter(({ ts }) => ts >= store.safePoint),
    )
    const collected = await pins.refusingBelow(decided.safePoint, () =>
      collectGarbage(store, decided.safePoint, this.#paceUntil(leading)),
    )
    this.#lastRun = { ...decided, ...collected, startedAtMs, durationMs: Math.round(performance.now() - begin) }
    return this.#lastRun
  }

  *#alive(by: Holder['by'], startTs: Iterable<Timestamp>): Generator<Holder> {
    const oldest = this.#sources.store.ago(TXN_HOLDS_MS_MAX)
    for (const ts of startTs) if (ts >= oldest) yield { by, ts }
  }

  #paceUntil(end: AbortSignal): Pace {
    const signal = AbortSignal.any([this.#abort.signal, end])
    const pause = (workedMs: number) => sleep(Math.min(REST * workedMs, REST_MS_MAX), signal).catch(() => {})
    return { pause, signal }
  }
}
