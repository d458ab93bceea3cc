import type { Registry } from '../cluster/registry.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import { throttle } from '../event-loop/throttle.js'
import { GC_LIFE_TIME_MS_DEFAULT, TXN_HOLDS_MS_MAX } from '../limits.js'
import type { Pace } from '../store/pace.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { type Collected, type CollectionOptions, collectGarbage, locksBelow, resolveLocks } from './collect-garbage.js'
import type { Pins } from './pins.js'
import { type Holder, type SafePoint, safePointOf } from './safe-point.js'

export interface GcOptions {
  /** Time for which overwritten versions stay readable; 0 means that they are collected only on request. */
  readonly lifeTimeMs: number
  readonly intervalMs: number
}

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
  readonly openTransactions: () => Iterable<Timestamp>
  readonly holders?: (() => Iterable<Holder>) | undefined
  /** Reads what other servers have changed of the holders. */
  readonly refresh?: (() => undefined | Promise<unknown>) | undefined
  readonly beforehand?: CollectionOptions['beforehand']
  readonly afterwards?: CollectionOptions['afterwards']
  readonly onError: (error: unknown) => void
}

/** Collects old versions at intervals and on request, one collection at a time. */
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

  /** The safe point that the life time of versions asks for, before any holder lowers it. */
  wanted(lifeTimeMs = this.#options.lifeTimeMs || GC_LIFE_TIME_MS_DEFAULT): Timestamp {
    const { store } = this.#sources
    return Math.max(store.safePoint, store.time.ago(lifeTimeMs))
  }

  /**
   * Runs a collection after those that were requested before. Resolves the locks of transactions that are over. Pins
   * and transactions that are alive keep the versions that they can read.
   * @param wanted the safe point, not above the store's clock. Holders may keep the real one below it.
   * @returns undefined when another server is collecting.
   */
  run(wanted: Timestamp): Promise<GcRun | undefined> {
    this.#running++
    const lead = () => this.#sources.registry.lead('gc', (signal) => this.#run(wanted, signal))
    const run = this.#last.then(lead).finally(() => this.#running--)
    this.#last = run.catch(() => {})
    return run
  }

  /** Ends a running collection after its present step. The next collection removes the rest. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#abort.abort()
    await this.#last
  }

  async #run(wanted: Timestamp, leading: AbortSignal): Promise<GcRun> {
    const { collections } = this.#sources.store.figures.meters
    const begin = performance.now()
    collections.runs++
    try {
      return await this.#collect(wanted, leading)
    } catch (error) {
      collections.failures++
      // Lowers the announced limit to the safe point: the collection goes no further for now.
      await this.#announce(0).catch(() => {})
      throw error
    } finally {
      collections.seconds += (performance.now() - begin) / 1000
    }
  }

  async #collect(wanted: Timestamp, leading: AbortSignal): Promise<GcRun> {
    const { store, pins, registry, refresh, beforehand, afterwards } = this.#sources
    const startedAtMs = Date.now()
    const begin = performance.now()
    await resolveLocks(store, this.#resolver, wanted, store.now())
    // resolved_ts is below the start_ts of a lock, and a feed that has caught up must not lose its place. A transaction that
    // began at the present safe point lives on there.
    const locked = new Set<Timestamp>()
    for await (const locks of locksBelow(store, wanted))
      for (const { startTs } of locks)
        if (startTs >= store.safePoint) locked.add(Math.max(startTs - 1, store.safePoint))
    await this.#announce(wanted)
    const elsewhere = await registry.oldest()
    if (registry.isShared) await Promise.all([pins.reload(), refresh?.()])
    // Must run in one turn of the event loop from here until `refusingBelow` has set its limit.
    const holders: Holder[] = [
      ...pins.holders(),
      ...this.#readers(),
      ...this.#alive('lock', locked),
      { by: 'transaction', ts: elsewhere },
    ]
    // Holders below the present safe point have lost their versions already, and hold nothing back.
    const decided = safePointOf(
      wanted,
      holders.filter(({ ts }) => ts >= store.safePoint),
    )
    const pace = this.#paceUntil(leading)
    const collected = await pins.refusingBelow(decided.safePoint, async () => {
      await this.#announce(decided.safePoint)
      return collectGarbage(store, decided.safePoint, { pace, beforehand, afterwards })
    })
    this.#lastRun = { ...decided, ...collected, startedAtMs, durationMs: Math.round(performance.now() - begin) }
    return this.#lastRun
  }

  /** The safe point that this server has raised stays announced, because the others may not know of it yet. */
  #announce(safePoint: Timestamp): Promise<void> {
    const { store, registry } = this.#sources
    return registry.announce(Math.max(safePoint, store.safePoint))
  }

  /** A lower bound of every snapshot that this process reads, now or later, for as long as it may hold collection back. */
  oldest(): Timestamp {
    let oldest = this.#sources.store.time.nextTsMin
    for (const { ts } of this.#sources.pins.held()) oldest = Math.min(oldest, ts)
    for (const { ts } of this.#readers()) oldest = Math.min(oldest, ts)
    return oldest
  }

  *#readers(): Generator<Holder> {
    yield* this.#alive('transaction', this.#sources.openTransactions())
    yield* this.#sources.holders?.() ?? []
  }

  *#alive(by: Holder['by'], startTs: Iterable<Timestamp>): Generator<Holder> {
    const oldest = this.#sources.store.time.ago(TXN_HOLDS_MS_MAX)
    for (const ts of startTs) if (ts >= oldest) yield { by, ts }
  }

  #paceUntil(end: AbortSignal): Pace {
    const signal = AbortSignal.any([this.#abort.signal, end])
    return { pause: (workedMs) => throttle(workedMs, signal), signal }
  }
}
