import type { KeyRange } from '../bytes/key-range.js'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { inParts } from '../coordinator/in-parts.js'
import { integerOf } from '../errors/integer-of.js'
import { KvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { rest } from '../event-loop/rest.js'
import { sleep } from '../event-loop/sleep.js'
import type { Limits } from '../limits.js'
import { KEYS_PER_TURN, TIMER_MS_MAX } from '../limits.js'
import { isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import type { CellListener, Cells } from '../store/cells.js'
import { requireLog } from '../store/change-log.js'
import type { Pace } from '../store/pace.js'
import { RecordTable } from '../store/record-table.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { ActiveObserver, CHANGES_AT_A_TIME, type ObserverSources } from './active-observer.js'
import { CellBudget } from './cell-budget.js'
import { claimOrder, leaseMs } from './claim-order.js'
import { collectAcks } from './collect-acks.js'
import type { DispatcherSizes } from './dispatcher.js'
import { distinctKeys } from './distinct-keys.js'
import { ExpiryMarks } from './expiry-marks.js'
import { isParked, retried, skipped } from './failed-run.js'
import type { ObserverCounts, ObserversHome, ObserversSummary } from './observers-home.js'
import { pageOfStates } from './page-of-states.js'
import {
  decodeBackfill,
  encodeBackfill,
  nameOfBackfill,
  OBSERVER_RECORDS,
  observedRangeOf,
  optionsOf,
  required,
  type StoredObserver,
} from './registration.js'
import type { Cell, CellChange, Failure } from './rules/cell.js'
import { noSuchObserver, requireInRange } from './rules/observer.js'
import type {
  ClaimName,
  ClaimRequest,
  Notification,
  ObserverState,
  Parked,
  Registration,
  Release,
} from './rules/observers-api.js'

/** While the store is not available. */
const SWEEP_RETRY_MS = 1000

export interface ObserversOptions {
  readonly limits: Pick<Limits, 'observersMax' | 'claimsMax'>
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
  /** From 0 to below 1. Default `Math.random`. */
  readonly random?: (() => number) | undefined
  /** Of each observer. */
  readonly sizes?: DispatcherSizes | undefined
}

/** The observers of a database, and the calls of their workers. @see The paper, section 2.4. */
export class Observers implements ObserversHome {
  readonly #store: Store
  readonly #cells: Cells
  readonly #options: ObserversOptions
  readonly #sources: ObserverSources
  readonly #byName = new SortedMap<ActiveObserver>()
  readonly #byId = new Map<Timestamp, ActiveObserver>()
  /** Observers whose acknowledgements all were collected, until the next one. */
  readonly #withoutAcks = new Set<Timestamp>()
  readonly #registrations: RecordTable<StoredObserver>
  /** Reads how far backfills of registrations that were read or written have come. Never rejects. */
  #resuming: Promise<void> = Promise.resolve()
  /** Another sweep is going to begin. */
  #isUnswept = false
  /** Never rejects. */
  #sweeping: Promise<void> = Promise.resolve()
  /** Never rejects. */
  #counting: Promise<void> | undefined
  readonly #end = new AbortController()
  readonly rides = undefined
  /** Marks what expires. */
  readonly expiryMarks: ExpiryMarks

  private constructor(store: Store, cells: Cells, options: ObserversOptions) {
    const { limits, onError, random = Math.random, sizes } = options
    this.#store = store
    this.#cells = cells
    this.#options = options
    this.#sources = { store, cells, budget: new CellBudget(limits.claimsMax), sizes, random, onError }
    this.#registrations = new RecordTable(store.system, OBSERVER_RECORDS, (name, stored) => this.#known(name, stored))
    this.expiryMarks = new ExpiryMarks({ store, cells, log: requireLog(store), onError })
  }

  /** Call this before anything is committed: commits mark the cells of registered observers only. */
  static async open(store: Store, cells: Cells, options: ObserversOptions): Promise<Observers> {
    const observers = new Observers(store, cells, options)
    await observers.#register()
    void observers.#begin()
    return observers
  }

  async #register(): Promise<void> {
    this.#store.observed.listen(this.#listener())
    await this.#registrations.load()
    await this.#resuming
  }

  /** One observer after the other. A claim does not wait for the others. */
  async #begin(): Promise<void> {
    this.#sweep()
    for (const observer of this.#byName.values()) {
      await observer.load().catch((error) => this.#report(error))
      if (!observer.stored.isPaused) observer.backfill.run()
    }
  }

  /** After the database was opened again. One observer after the other, as at the start. */
  async #reload(): Promise<void> {
    await this.#settle()
    for (const observer of this.#byName.values()) await observer.reload().catch((error) => this.#report(error))
  }

  #add(stored: StoredObserver): ActiveObserver {
    const range = keyRangeOf(stored.range)
    const { id, name, options } = stored
    this.#store.observed.register({ id, name, range, maxDepth: options.maxDepth })
    this.expiryMarks.run()
    const observer = new ActiveObserver(this.#sources, stored, range)
    this.#byName.set(name, observer)
    this.#byId.set(id, observer)
    return observer
  }

  #find(name: string): ActiveObserver {
    const observer = this.#byName.get(name)
    if (observer === undefined) throw noSuchObserver(name)
    return observer
  }

  #sweep(): void {
    if (this.#isUnswept) return
    this.#isUnswept = true
    this.#sweeping = this.#sweeping.then(() => this.#sweepAll())
  }

  /** Tries again while the store is not available. Never rejects. */
  async #sweepAll(): Promise<void> {
    const { signal } = this.#end
    const pace: Pace = { pause: (workedMs) => rest(workedMs, signal), signal }
    while (this.#isUnswept && !signal.aborted) {
      this.#isUnswept = false
      try {
        await this.#cells.sweep(pace)
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

  /** Answers waiting claims with nothing, and all later ones. Acknowledgements go on. */
  async close(): Promise<void> {
    this.#end.abort()
    await Promise.all([...this.#byName.values()].map((observer) => observer.end()))
    await this.expiryMarks.close()
    await this.#sweeping
  }

  // ---- Registrations

  async put(
    name: string,
    { range, backfill = false, ...given }: Registration,
  ): Promise<{ readonly state: ObserverState; readonly isNew: boolean }> {
    const keyRange = observedRangeOf(range)
    const options = optionsOf(given)
    let isNew = false
    const state = await this.#change(
      name,
      async (present) => {
        isNew = present === undefined
        if (present === undefined) return this.#create({ name, range, options }, keyRange)
        if (isSameRange(keyRangeOf(present.range), keyRange)) return { ...present, range, options }
        const text = `the observer ${name} has another range: delete it first, or take another name`
        throw new KvError('already_exists', text, { observer: name })
      },
      backfill,
    )
    return { state, isNew }
  }

  /** Marks begin in one turn. Everything that commits above a timestamp from after it is marked, also while the write is in doubt. */
  async #create(asked: Pick<StoredObserver, 'name' | 'range' | 'options'>, range: KeyRange): Promise<StoredObserver> {
    const { observersMax } = this.#options.limits
    // With this one.
    if (this.#registrations.size > observersMax)
      throw new KvError('overloaded', `there are ${observersMax} observers already`, {})
    const id = await this.#store.tso(1)
    this.#store.observed.register({ id, name: asked.name, range, maxDepth: asked.options.maxDepth })
    this.expiryMarks.run()
    return { ...asked, id, sinceTs: await this.#sinceTs(id), isPaused: false }
  }

  async #sinceTs(id: Timestamp): Promise<Timestamp> {
    try {
      return await this.#store.tso(1)
    } catch (error) {
      this.#unregister(id)
      this.#sweep()
      throw error
    }
  }

  /** @param backfill from the beginning. */
  async #change(
    name: string,
    decide: (present: StoredObserver | undefined) => Awaitable<StoredObserver>,
    backfill = false,
  ): Promise<ObserverState> {
    requireName('observer', name)
    await this.#registrations.change(name, decide, ({ id }) =>
      backfill ? [{ name: nameOfBackfill(name), value: encodeBackfill({ id, after: undefined }) }] : [],
    )
    await this.#resuming
    return this.#find(name).state()
  }

  /** A registration is known to stand, or to stand no more. Marks have gone on while that was in doubt, so `since_ts` is true. */
  #known(name: string, stored: StoredObserver | undefined): void {
    const observer = this.#byName.get(name)
    if (stored === undefined) {
      const id = observer?.id ?? this.#store.observed.named(name)?.id
      this.#byName.delete(name)
      if (id !== undefined) this.#unregister(id)
      void observer?.end(noSuchObserver(name))
      this.#sweep()
      return
    }
    const known = observer ?? this.#add(stored)
    this.#resuming = this.#resuming.then(() => this.#resume(known)).catch((error) => this.#report(error))
    if (observer === undefined) return
    const { id, options } = stored
    this.#store.observed.register({ id, name, range: observer.range, maxDepth: options.maxDepth })
    observer.become(stored)
  }

  async #resume({ id, stored, backfill }: ActiveObserver): Promise<void> {
    const record = nameOfBackfill(stored.name)
    const bytes = (await this.#store.system.list(record)).get(record)
    const progress = bytes && decodeBackfill(bytes)
    if (progress?.id !== id) return // A name may be given to a new observer.
    // One that is running has come further than its record.
    if (!backfill.isWanted || progress.after === undefined) backfill.want(progress.after)
    if (!stored.isPaused) backfill.run()
  }

  async #settle(): Promise<void> {
    await this.#registrations.settle().catch((error) => this.#report(error))
  }

  #unregister(id: Timestamp): void {
    this.#store.observed.unregister(id)
    this.#byId.delete(id)
    this.#withoutAcks.delete(id)
  }

  /** This process alone registers them. */
  learn(): undefined {}

  passTo(ts: Timestamp): Promise<void> {
    return this.expiryMarks.passTo(ts)
  }

  async get(name: string): Promise<ObserverState> {
    return this.#find(name).state()
  }

  async list(): Promise<readonly ObserverState[]> {
    return (await this.page({ limit: Number.POSITIVE_INFINITY })).items
  }

  page(request: PageRequest, reaches?: (range: KeyRange) => boolean): Promise<Page<ObserverState>> {
    return pageOfStates(this.#byName, request, reaches)
  }

  /** What each observer counts, without waiting and without its workers. */
  *counts(): Generator<ObserverCounts, void> {
    let isExact = true
    for (const [name, observer] of this.#byName) {
      const { counts } = observer
      isExact &&= counts.pendingIsExact
      yield { name, ...counts }
    }
    if (!isExact) this.#counting ??= this.#countPending()
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

  /** One observer after the other. */
  async #countPending(): Promise<void> {
    for (const name of [...this.#byName.keys()]) {
      const observer = this.#byName.get(name)
      if (observer?.summary.pendingIsExact === false) await observer.countPending()
    }
    this.#counting = undefined
  }

  async remove(name: string): Promise<void> {
    requireName('observer', name)
    const removed = this.#byName.get(name)
    const stop = async (present: StoredObserver | undefined): Promise<undefined> => {
      if (present === undefined) throw noSuchObserver(name)
      await this.#find(name).backfill.stop() // Else its progress would be written again.
    }
    await this.#registrations.change(name, stop, () => [{ name: nameOfBackfill(name), value: undefined }])
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

  // ---- Workers

  async claim(name: string, request: ClaimRequest): Promise<Notification[]> {
    const observer = this.#find(name)
    return observer.claim(claimOrder(request, this.#byName.values()))
  }

  async extend(name: string, claims: readonly ClaimName[], ms?: number): Promise<ClaimName[]> {
    const asked = ms === undefined ? undefined : leaseMs(ms)
    return this.#find(name).extend(claims, asked)
  }

  async release(
    name: string,
    claims: readonly Release[],
  ): Promise<{ readonly released: number; readonly parked: Uint8Array[] }> {
    for (const { retryAfterMs } of claims) integerOf('retry_after_ms', retryAfterMs ?? 0, 0, TIMER_MS_MAX)
    return this.#find(name).release(claims)
  }

  // ---- Cells

  async notify(
    name: string,
    keys: readonly Uint8Array[],
  ): Promise<{ readonly notified: number; readonly ts: Timestamp }> {
    const { id, range } = this.#find(name)
    for (const [index, key] of keys.entries()) requireInRange({ name, range }, key, () => `keys[${index}]`)
    const asked = await distinctKeys(keys)
    let ts = asked.length === 0 ? await this.#store.tso(1) : 0
    for (const some of inParts(asked, KEYS_PER_TURN))
      ts = await this.#cells.change(id, some, (cells, changeTs) => ({
        value: changeTs,
        changes: cells.map(({ key }) => ({ key, entry: { changeTs, kind: 'notified', depth: 0 } })),
      }))
    return { notified: asked.length, ts }
  }

  async parked(
    name: string,
    page: { readonly limit: number; readonly after?: Uint8Array | undefined },
  ): Promise<{ readonly parked: Parked[]; readonly next?: Uint8Array | undefined }> {
    const { id } = this.#find(name)
    const parked: Parked[] = []
    for (let after = page.after; ; ) {
      const limit = Math.min(CHANGES_AT_A_TIME, page.limit - parked.length)
      const failures = await this.#cells.failures(id, { after, limit })
      parked.push(...(await this.#parkedOf(id, failures)))
      after = failures.at(-1)?.key
      if (failures.length < limit) return { parked }
      if (parked.length >= page.limit) return { parked, next: after }
    }
  }

  async #parkedOf(id: Timestamp, failures: readonly { key: Uint8Array; failure: Failure }[]): Promise<Parked[]> {
    const keys = failures.filter(({ failure }) => failure.parkedTs > 0).map(({ key }) => key)
    if (keys.length === 0) return []
    return (await this.#cells.read(id, keys)).flatMap((cell) => {
      const { key, failure } = cell
      if (failure === undefined || !isParked(cell)) return []
      const { changeTs, attempts, error, parkedTs } = failure
      return { key, commitTs: changeTs, attempts, error, parkedAtMs: physicalMs(parkedTs) }
    })
  }

  async retry(name: string, keys?: readonly Uint8Array[]): Promise<number> {
    const observer = this.#find(name)
    if (keys !== undefined) return this.#retry(observer, await distinctKeys(keys))
    let count = 0
    for (let after: Uint8Array | undefined; ; ) {
      const failures = await this.#cells.failures(observer.id, { after, limit: CHANGES_AT_A_TIME })
      const parked = failures.filter(({ failure }) => failure.parkedTs > 0)
      count += await this.#retry(
        observer,
        parked.map(({ key }) => key),
      )
      after = failures.at(-1)?.key
      if (failures.length < CHANGES_AT_A_TIME) break
    }
    observer.unparked()
    return count
  }

  #retry(observer: ActiveObserver, keys: readonly Uint8Array[]): Promise<number> {
    return this.#decideEach(observer, keys, retried)
  }

  async skip(name: string, keys: readonly Uint8Array[]): Promise<number> {
    const observer = this.#find(name)
    const count = await this.#decideEach(observer, await distinctKeys(keys), skipped)
    if (count > 0) this.#withoutAcks.delete(observer.id)
    return count
  }

  /** @returns the number of cells that were changed. */
  async #decideEach(
    { id }: ActiveObserver,
    keys: readonly Uint8Array[],
    decide: (cell: Cell, ts: Timestamp) => CellChange | undefined,
  ): Promise<number> {
    let count = 0
    for (const some of inParts(keys, CHANGES_AT_A_TIME))
      count += await this.#cells.change(id, some, (cells, ts) => {
        const changes = cells.flatMap((cell) => decide(cell, ts) ?? [])
        return { value: changes.length, changes }
      })
    return count
  }

  // ---- Upkeep

  /** Removes acknowledgements that no run can conflict with, after a collection up to `safePoint`. */
  async collect(safePoint: Timestamp, pace?: Pace): Promise<void> {
    await this.#settle()
    for (const id of [...this.#byId.keys()]) {
      if (this.#withoutAcks.has(id)) continue
      this.#withoutAcks.add(id) // Before the walk, because acknowledgements meanwhile remove it.
      let isEmpty = false
      try {
        isEmpty = await collectAcks(this.#cells, id, safePoint, pace)
      } finally {
        if (!isEmpty || !this.#byId.has(id)) this.#withoutAcks.delete(id)
      }
    }
  }

  #listener(): CellListener {
    const of = (id: Timestamp): ActiveObserver | undefined => this.#byId.get(id)
    return {
      handedOut: (id, key) => of(id)?.handedOut(key) ?? { fence: 0, hasFailure: true },
      marked: (id, key, entry) => of(id)?.marked(key, entry),
      retried: (id, key, entry) => of(id)?.retried(key, entry),
      skipped: (id, key) => of(id)?.skipped(key),
      parked: (id, key, failure) => of(id)?.parked(key, failure),
      acknowledged: (id, key, entry) => {
        this.#withoutAcks.delete(id)
        of(id)?.acknowledged(key, entry)
      },
      conflicted: (id) => of(id)?.conflicted(),
      reloaded: () => {
        for (const observer of this.#byId.values()) observer.unload()
        this.#withoutAcks.clear() // A run that failed may have committed.
        this.#reload().catch((error) => this.#report(error))
      },
    }
  }
}
