import type { KeyRange } from '../bytes/key-range.js'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import type { TransactionContext } from '../coordinator/committer.js'
import type { EffectsAsRows } from '../coordinator/effect-rows.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import { integerOf } from '../errors/integer-of.js'
import { KvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { sleep } from '../event-loop/sleep.js'
import { throttle } from '../event-loop/throttle.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'
import type { Limits } from '../limits.js'
import { TIMER_MS_MAX } from '../limits.js'
import { isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import type { Pace } from '../store/pace.js'
import { RecordTable } from '../store/record-table.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { pagesOf } from './cell-pages.js'
import { claimOrder, leaseMs } from './claim-order.js'
import type { ActiveObserver, DirtyKeys, DirtyKeysSources } from './dirty-keys.js'
import { distinctKeys } from './distinct-keys.js'
import { HintedKeys } from './hints/hinted-keys.js'
import type { DispatcherSizes } from './marks/dispatcher.js'
import { MarkedKeys } from './marks/marked-keys.js'
import {
  encodeBackfill,
  nameOfBackfill,
  OBSERVER_RECORDS,
  observedRangeOf,
  optionsOf,
  registeredOf,
  required,
  type StoredObserver,
} from './registration.js'
import type { Failure } from './rules/cell.js'
import { noSuchObserver, requireInRange } from './rules/observer.js'
import type {
  ClaimName,
  ClaimRequest,
  Notification,
  ObserverState,
  ObserversApi,
  Parked,
  Registration,
  Release,
} from './rules/observers-api.js'

/** Pause before the sweep is tried again while the store is not available. */
const SWEEP_RETRY_MS = 1000
/** Failures per page. */
const PAGE = 256

export interface ObserversOptions {
  readonly limits: Pick<Limits, 'observersMax' | 'claimsMax'>
  /** For the transactions of the observers themselves. Called after the start only. */
  readonly context: () => TransactionContext
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
  /** Returns a number from 0 to below 1. Default `Math.random`. */
  readonly random?: (() => number) | undefined
  /** For each observer of a process that has the store to itself. */
  readonly sizes?: DispatcherSizes | undefined
}

export type CountedObserver = Omit<
  ObserverState,
  keyof StoredObserver['options'] | 'range' | 'sinceTs' | 'state' | 'workers'
>

export interface ObserversSummary extends Omit<CountedObserver, 'name' | 'acks' | 'conflicts'> {
  /** Number of registered observers. */
  readonly count: number
}

/** The observers of a database, and the calls of their workers. @see The paper, section 2.4. */
export class Observers implements ObserversApi {
  readonly #store: Store
  readonly #options: ObserversOptions
  readonly #byName = new SortedMap<ActiveObserver>()
  readonly #registrations: RecordTable<StoredObserver>
  readonly #dirty: DirtyKeys
  /** Another sweep follows the present one. */
  #isUnswept = false
  /** Never rejects. */
  #sweeping: Promise<void> = Promise.resolve()
  /** Never rejects. */
  #counting: Promise<void> | undefined
  readonly #end = new AbortController()

  private constructor(store: Store, options: ObserversOptions) {
    const { limits, context, random = Math.random, sizes } = options
    this.#store = store
    this.#options = options
    this.#registrations = new RecordTable(store.system, OBSERVER_RECORDS, (name, stored) => this.#learned(name, stored))
    const sources: DirtyKeysSources = {
      ...{ store, registrations: this.#registrations, random, signal: this.#end.signal },
      resolver: new LockResolver(store),
      report: (error) => this.#report(error),
      sweep: () => this.#sweep(),
    }
    const { cells } = store
    this.#dirty = cells.isShared
      ? new HintedKeys(sources, cells, context)
      : new MarkedKeys(sources, cells, limits.claimsMax, sizes)
  }

  /** Call this before anything is committed: commits mark the cells of registered observers only. */
  static async open(store: Store, options: ObserversOptions): Promise<Observers> {
    const observers = new Observers(store, options)
    await observers.#dirty.open()
    observers.#sweep()
    return observers
  }

  get effectsAsRows(): EffectsAsRows | undefined {
    return this.#dirty.effectsAsRows
  }

  /** Updates what is known of the observer with this name. */
  #learned(name: string, stored: StoredObserver | undefined): void {
    const present = this.#byName.get(name)
    if (stored === undefined || (present !== undefined && present.id !== stored.id)) {
      this.#byName.delete(name)
      this.#dirty.forget(name, present?.id)
      void present?.end(noSuchObserver(name))
    }
    if (stored !== undefined && stored.sinceTs > 0) this.#byName.set(name, this.#dirty.known(stored))
  }

  /** Reads registrations that other servers have made. @returns undefined when all of these names are known. */
  refreshIfUnknown(names: readonly string[]): undefined | Promise<void> {
    return this.#dirty.refreshIfUnknown(names)
  }

  #find(name: string): ActiveObserver {
    const observer = this.#byName.get(name)
    if (observer === undefined) throw noSuchObserver(name)
    return observer
  }

  async #known(name: string): Promise<ActiveObserver> {
    const learning = this.refreshIfUnknown([name])
    if (learning !== undefined) await learning
    return this.#find(name)
  }

  #sweep(): void {
    if (this.#isUnswept) return
    this.#isUnswept = true
    this.#sweeping = this.#sweeping.then(() => this.#sweepAll())
  }

  /** Tries again while the store is not available. Never rejects. */
  async #sweepAll(): Promise<void> {
    const { signal } = this.#end
    const pace: Pace = { pause: (workedMs) => throttle(workedMs, signal), signal }
    while (this.#isUnswept && !signal.aborted) {
      this.#isUnswept = false
      try {
        await this.#store.cells.sweep(pace)
      } catch (error) {
        this.#report(error)
        if (!(error instanceof KvError)) return
        this.#isUnswept = true
        await sleep(SWEEP_RETRY_MS, signal).catch(() => {})
      }
    }
  }

  #report(error: unknown): void {
    if (!this.#end.signal.aborted && !(error instanceof KvError)) this.#options.onError(error)
  }

  /** Answers waiting and later claims with nothing. Acknowledgements go on. */
  async close(): Promise<void> {
    this.#end.abort()
    await Promise.all([...this.#byName.values()].flatMap((observer) => [observer.end(), observer.backfill.idle]))
    await this.#dirty.close()
    await this.#sweeping
  }

  // ---- Registrations

  async put(name: string, { range, backfill = false, ...given }: Registration): ReturnType<ObserversApi['put']> {
    const keyRange = observedRangeOf(range)
    const options = optionsOf(given)
    let isNew = false
    const state = await this.#change(
      name,
      async (present) => {
        isNew = present === undefined || present.sinceTs === 0
        if (present === undefined) return this.#create({ name, range, options })
        if (isSameRange(keyRangeOf(present.range), keyRange)) return { ...present, range, options }
        const text = `the observer ${name} has another range: delete it first, or take another name`
        throw new KvError('already_exists', text, { observer: name })
      },
      backfill,
    )
    return { state, isNew }
  }

  async #create(asked: Pick<StoredObserver, 'name' | 'range' | 'options'>): Promise<StoredObserver> {
    const { observersMax } = this.#options.limits
    await this.#dirty.refresh()
    // Including this one.
    if (this.#registrations.size > observersMax)
      throw new KvError('overloaded', `there are ${observersMax} observers already`, {})
    const stored = { ...asked, id: await this.#store.tso(1), sinceTs: 0, isPaused: false }
    return { ...stored, sinceTs: await this.#dirty.register(registeredOf(stored)) }
  }

  /** @param backfill starts a backfill from the beginning, also when one is running. */
  async #change(
    name: string,
    decide: (present: StoredObserver | undefined) => Awaitable<StoredObserver>,
    backfill = false,
  ): Promise<ObserverState> {
    requireName('observer', name)
    const { random = Math.random } = this.#options
    const stored = await this.#registrations.change(name, decide, ({ id }) =>
      backfill ? [{ name: nameOfBackfill(name), value: encodeBackfill({ id, after: undefined }, random) }] : [],
    )
    await this.#dirty.written(stored)
    return this.#stateOf(this.#find(name))
  }

  async remove(name: string): Promise<void> {
    requireName('observer', name)
    const removed = this.#byName.get(name)
    const remove = (present: StoredObserver | undefined): undefined => void required(name, present)
    await this.#registrations.change(name, remove, () => [{ name: nameOfBackfill(name), value: undefined }])
    await this.#dirty.written(undefined)
    await removed?.end(noSuchObserver(name))
  }

  backfill(name: string): Promise<ObserverState> {
    return this.#change(name, (present) => required(name, present), true)
  }

  pause(name: string): Promise<ObserverState> {
    return this.#setPaused(name, true)
  }

  resume(name: string): Promise<ObserverState> {
    return this.#setPaused(name, false)
  }

  #setPaused(name: string, isPaused: boolean): Promise<ObserverState> {
    return this.#change(name, (present) => {
      const stored = required(name, present)
      return stored.isPaused === isPaused ? stored : { ...stored, isPaused }
    })
  }

  // ---- State

  async get(name: string): Promise<ObserverState> {
    await this.#dirty.refresh()
    return this.#stateOf(this.#find(name))
  }

  async list(): Promise<readonly ObserverState[]> {
    return (await this.page({ limit: Number.POSITIVE_INFINITY })).items
  }

  /**
   * Runs in slices; counts only the observers of the page. @param mayAccess whether the caller may see the range. Default: all.
   */
  async page(request: PageRequest, mayAccess?: (range: KeyRange) => boolean): Promise<Page<ObserverState>> {
    await this.#dirty.refresh()
    const isShown = ({ stored }: ActiveObserver): boolean => mayAccess?.(keyRangeOf(stored.range)) !== false
    const { items, next } = await this.#byName.page(request, isShown)
    const states: ObserverState[] = []
    const slicer = new TimeSlicer(1) // Each state lists up to 256 workers.
    for (const observer of items) {
      await slicer.next()
      if (this.#byName.get(observer.stored.name) === observer) states.push(await this.#stateOf(observer))
    }
    return { items: states, next }
  }

  async #stateOf(observer: ActiveObserver): Promise<ObserverState> {
    await observer.count()
    const { stored, backfill, workers } = observer
    const { range, options, sinceTs, isPaused } = stored
    const state = isPaused ? 'paused' : backfill.isWanted ? 'backfilling' : 'running'
    return { range, ...options, sinceTs, state, ...this.#countsOf(observer), workers }
  }

  #countsOf({ stored: { name }, counts: { oldest, ...counts } }: ActiveObserver): CountedObserver {
    const lagMs = oldest === 0 ? 0 : Math.max(0, physicalMs(this.#store.now()) - physicalMs(oldest))
    return { name, ...counts, lagMs }
  }

  /** The counts of each observer, without waiting and without its workers. */
  *counts(): Generator<CountedObserver, void> {
    for (const observer of this.#byName.values()) yield this.#countsOf(observer)
    this.#counting ??= this.#recount()
  }

  /** The totals of all observers, without waiting. */
  summary(): ObserversSummary {
    const total = { pending: 0, pendingIsExact: true, claimed: 0, delayed: 0, parked: 0, lagMs: 0 }
    for (const counts of this.counts()) {
      total.pending += counts.pending
      total.pendingIsExact &&= counts.pendingIsExact
      total.claimed += counts.claimed
      total.delayed += counts.delayed
      total.parked += counts.parked
      total.lagMs = Math.max(total.lagMs, counts.lagMs)
    }
    return { count: this.#byName.size, ...total }
  }

  /** Recounts one observer after the other. */
  async #recount(): Promise<void> {
    for (const name of [...this.#byName.keys()]) await this.#byName.get(name)?.recount()
    this.#counting = undefined
  }

  // ---- Workers

  async claim(name: string, request: ClaimRequest): Promise<Notification[]> {
    const observer = await this.#known(name)
    return observer.claim(claimOrder(request, this.#byName.values()))
  }

  async extend(name: string, claims: readonly ClaimName[], ms?: number): Promise<ClaimName[]> {
    const asked = ms === undefined ? undefined : leaseMs(ms)
    return (await this.#known(name)).extend(claims, asked)
  }

  async release(name: string, claims: readonly Release[]): ReturnType<ObserversApi['release']> {
    for (const { retryAfterMs } of claims) integerOf('retry_after_ms', retryAfterMs ?? 0, 0, TIMER_MS_MAX)
    return (await this.#known(name)).release(claims)
  }

  // ---- Cells

  async notify(name: string, keys: readonly Uint8Array[]): ReturnType<ObserversApi['notify']> {
    const observer = await this.#known(name)
    const registered = registeredOf(observer.stored)
    for (const [index, key] of keys.entries()) requireInRange(registered, key, () => `keys[${index}]`)
    const asked = await distinctKeys(keys)
    const ts = asked.length === 0 ? await this.#store.tso(1) : await observer.notify(asked)
    return { notified: asked.length, ts }
  }

  async parked(name: string, page: Parameters<ObserversApi['parked']>[1]): ReturnType<ObserversApi['parked']> {
    const observer = await this.#known(name)
    const parked: Parked[] = []
    for (let { after } = page; ; ) {
      const limit = Math.min(PAGE, page.limit - parked.length)
      const failures = await this.#store.cells.failures(observer.id, { after, limit })
      for (const { key, failure } of await observer.parked(parkedKeys(failures))) {
        const { changeTs, attempts, error, parkedTs } = failure
        parked.push({ key, commitTs: changeTs, attempts, error, parkedAtMs: physicalMs(parkedTs) })
      }
      after = failures.at(-1)?.key
      if (failures.length < limit) return { parked }
      if (parked.length >= page.limit) return { parked, next: after }
    }
  }

  async retry(name: string, keys?: readonly Uint8Array[]): Promise<number> {
    const observer = await this.#known(name)
    if (keys !== undefined) return observer.retry(await distinctKeys(keys))
    let count = 0
    for await (const failures of pagesOf((page) => this.#store.cells.failures(observer.id, page), PAGE))
      count += await observer.retry(parkedKeys(failures))
    observer.unparked()
    return count
  }

  async skip(name: string, keys: readonly Uint8Array[]): Promise<number> {
    const observer = await this.#known(name)
    return observer.skip(await distinctKeys(keys))
  }

  // ---- Upkeep

  passTo(ts: Timestamp): Promise<void> {
    return this.#dirty.passTo(ts)
  }

  collect(safePoint: Timestamp, pace?: Pace): Promise<void> {
    return this.#dirty.collect(safePoint, pace)
  }
}

function parkedKeys(failures: readonly { readonly key: Uint8Array; readonly failure: Failure }[]): Uint8Array[] {
  return failures.filter(({ failure }) => failure.parkedTs > 0).map(({ key }) => key)
}
