import type { KeyRange } from '../bytes/key-range.js'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { inParts } from '../coordinator/in-parts.js'
import { integerOf } from '../errors/integer-of.js'
import { KvError } from '../errors/kv-error.js'
import { rest } from '../event-loop/rest.js'
import { sleep } from '../event-loop/sleep.js'
import type { Limits } from '../limits.js'
import { KEYS_PER_TURN, TIMER_MS_MAX } from '../limits.js'
import { isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import type { CellListener, Cells } from '../store/cells.js'
import { requireLog } from '../store/change-log.js'
import type { Pace } from '../store/pace.js'
import type { Store } from '../store/store.js'
import type { SystemWrite } from '../store/system-records.js'
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
  decodeObserver,
  encodeBackfill,
  encodeObserver,
  isBackfillRecord,
  nameOfBackfill,
  nameOfRecord,
  observedRangeOf,
  optionsOf,
  REGISTRATIONS,
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

/** A registration that has been checked. */
interface Asked extends Pick<StoredObserver, 'name' | 'range' | 'options'> {
  readonly keyRange: KeyRange
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
  /** Registrations that are being written. */
  #arriving = 0
  /** Names of which a write has failed: the disk knows whether it has landed. */
  readonly #inDoubt = new Set<string>()
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
    const { observed, system } = this.#store
    observed.listen(this.#listener())
    const records = await system.list(REGISTRATIONS)
    for (const [record, value] of records) {
      if (isBackfillRecord(record)) continue
      const name = record.slice(REGISTRATIONS.length)
      wantAsStored(this.#add(decodeObserver(name, value)), records.get(nameOfBackfill(name)))
    }
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
    await this.#settleAll()
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
    const asked: Asked = { name, range, keyRange: observedRangeOf(range), options: optionsOf(given) }
    return this.#changing(name, async () => {
      const present = this.#byName.get(name)
      if (present === undefined) return { state: await (await this.#create(asked, backfill)).state(), isNew: true }
      if (!isSameRange(present.range, asked.keyRange)) {
        const text = `the observer ${name} has another range: delete it first, or take another name`
        throw new KvError('already_exists', text, { observer: name })
      }
      await this.#change(present, { ...present.stored, range, options: asked.options }, backfill)
      return { state: await present.state(), isNew: false }
    })
  }

  /** Marks begin in one turn. Everything that commits above a timestamp from after it is marked. */
  async #create({ name, range, keyRange, options }: Asked, backfill: boolean): Promise<ActiveObserver> {
    const { observersMax } = this.#options.limits
    if (this.#byName.size + this.#arriving + this.#inDoubt.size >= observersMax)
      throw new KvError('overloaded', `there are ${observersMax} observers already`, {})
    this.#arriving++
    try {
      const id = await this.#store.tso(1)
      this.#store.observed.register({ id, name, range: keyRange, maxDepth: options.maxDepth })
      this.expiryMarks.run()
      const sinceTs = await this.#sinceTs(id)
      const stored: StoredObserver = { id, name, range, options, sinceTs, isPaused: false }
      await this.#write(name, recordsOf(stored, backfill)) // When it has failed, cells are marked until that is settled.
      const observer = this.#add(stored)
      if (backfill) observer.backfill.want()
      observer.backfill.run()
      return observer
    } finally {
      this.#arriving--
    }
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

  async #change(observer: ActiveObserver, stored: StoredObserver, backfill: boolean): Promise<void> {
    await this.#write(stored.name, recordsOf(stored, backfill))
    if (backfill) observer.backfill.want()
    this.#become(observer, stored)
  }

  #become(observer: ActiveObserver, stored: StoredObserver): void {
    const { id, name, options } = stored
    this.#store.observed.register({ id, name, range: observer.range, maxDepth: options.maxDepth })
    observer.become(stored)
  }

  /** Writes records of one registration, whose name is held. */
  async #write(name: string, writes: readonly SystemWrite[]): Promise<void> {
    try {
      await this.#store.system.write(writes)
    } catch (error) {
      this.#inDoubt.add(name)
      await this.#settle(name).catch(() => {}) // Later, when the database is not open again yet.
      throw error
    }
  }

  /**
   * A write that has failed may be on disk: the registration becomes what stands there. Marks have gone on, so `since_ts` is true.
   * Call it while the name is held. @throws KvError `storage_unavailable`
   */
  async #settle(name: string): Promise<void> {
    if (!this.#inDoubt.has(name)) return
    const { system } = this.#store
    const record = await system.get(nameOfRecord(name))
    const backfill = await system.get(nameOfBackfill(name))
    this.#inDoubt.delete(name)
    if (record === undefined) return this.#forget(name)
    const stored = decodeObserver(name, record)
    const observer = this.#byName.get(name) ?? this.#add(stored)
    wantAsStored(observer, backfill)
    this.#become(observer, stored)
  }

  async #settleAll(): Promise<void> {
    for (const name of [...this.#inDoubt])
      await this.#changing(name, async () => {}).catch((error) => this.#report(error))
  }

  /** Its record is not on disk. */
  async #forget(name: string): Promise<void> {
    const observer = this.#byName.get(name)
    const id = observer?.id ?? this.#store.observed.named(name)?.id
    this.#byName.delete(name)
    if (id !== undefined) this.#unregister(id)
    await observer?.end(noSuchObserver(name))
    this.#sweep()
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

  remove(name: string): Promise<void> {
    return this.#changing(name, async () => {
      const observer = this.#find(name)
      await observer.backfill.stop() // Else its progress would be written again.
      const records = [nameOfRecord(name), nameOfBackfill(name)]
      await this.#write(
        name,
        records.map((record) => ({ name: record, value: undefined })),
      )
      await this.#forget(name)
    })
  }

  backfill(name: string): Promise<ObserverState> {
    return this.#changing(name, async () => {
      const observer = this.#find(name)
      await this.#change(observer, observer.stored, true)
      return observer.state()
    })
  }

  pause(name: string): Promise<ObserverState> {
    return this.#setPaused(name, true)
  }

  resume(name: string): Promise<ObserverState> {
    return this.#setPaused(name, false)
  }

  #setPaused(name: string, isPaused: boolean): Promise<ObserverState> {
    return this.#changing(name, async () => {
      const observer = this.#find(name)
      if (observer.stored.isPaused !== isPaused) await this.#change(observer, { ...observer.stored, isPaused }, false)
      return observer.state()
    })
  }

  /** Changes of one registration run one after the other. */
  async #changing<T>(name: string, body: () => Promise<T>): Promise<T> {
    requireName('observer', name)
    return this.#store.system.hold([nameOfRecord(name)], async () => {
      await this.#settle(name)
      return body()
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
    await this.#settleAll()
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

function recordsOf(stored: StoredObserver, backfill: boolean): SystemWrite[] {
  const { id, name } = stored
  const writes: SystemWrite[] = [{ name: nameOfRecord(name), value: encodeObserver(stored) }]
  if (backfill) writes.push({ name: nameOfBackfill(name), value: encodeBackfill({ id, after: undefined }) })
  return writes
}

/** @param record of its backfill. A name may be given to a new observer. */
function wantAsStored(observer: ActiveObserver, record: Uint8Array | undefined): void {
  if (record === undefined) return
  const { id, after } = decodeBackfill(record)
  if (id === observer.id) observer.backfill.want(after)
}
