import type { KeyRange } from '../bytes/key-range.js'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { Backoff } from '../coordinator/backoff.js'
import { Committer, type TransactionHome } from '../coordinator/committer.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import type { Rides } from '../coordinator/ride.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { integerOf } from '../errors/integer-of.js'
import { isKvError, KvError } from '../errors/kv-error.js'
import { rest } from '../event-loop/rest.js'
import { sleep } from '../event-loop/sleep.js'
import { LOCK_WAIT_MS_DEFAULT, TIMER_MS_MAX } from '../limits.js'
import type { PrewriteMutation } from '../percolator/api.js'
import { isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import { RecordTable } from '../store/record-table.js'
import type { SharedCells } from '../store/shared-cells.js'
import type { Store } from '../store/store.js'
import type { SystemWrite } from '../store/system-records.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import { claimOrder, leaseMs } from './claim-order.js'
import { distinctKeys } from './distinct-keys.js'
import type { ObserversOptions } from './observers.js'
import type { ObserverCounts, ObserversHome, ObserversSummary } from './observers-home.js'
import { pageOfStates } from './page-of-states.js'
import {
  nameOfBackfill,
  OBSERVER_RECORDS,
  observedRangeOf,
  optionsOf,
  required,
  type StoredObserver,
} from './registration.js'
import { encodeAckTs } from './rules/codec/cell-key.js'
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
import type { SharedObserver as Registered, SharedCell } from './rules/shared-cell.js'
import {
  backfillShared,
  COMMITS_AT_ONCE,
  decodeProgress,
  encodeProgress,
  type SharedBackfillSources,
} from './shared-backfill.js'
import { unpark } from './shared-cleaning.js'
import { SharedObserver } from './shared-observer.js'
import { notification, type RiderSources, sharedRide } from './shared-riders.js'

/** Registrations that were read are good for this long, for those who ask. */
const KNOWN_MS = 1000
const CELLS_AT_A_TIME = 64
/** Of a transaction of the observers themselves. */
const TRIES_MAX = 20
/** After a failure of background work. */
const RETRY_MS = 1000

export interface SharedObserversOptions extends Omit<ObserversOptions, 'sizes'> {
  /** For transactions of the observers themselves. Asked after the start. */
  readonly home: () => TransactionHome
}

/** The observers of a database whose store several servers share, and the calls of their workers. */
export class SharedObservers implements ObserversHome {
  readonly #store: Store
  readonly #cells: SharedCells
  readonly #registrations: RecordTable<StoredObserver>
  readonly #options: SharedObserversOptions
  readonly #resolver: LockResolver
  readonly #random: () => number
  readonly #byName = new SortedMap<SharedObserver>()
  readonly #byId = new Map<Timestamp, SharedObserver>()
  #knownMs = Number.NEGATIVE_INFINITY
  readonly #backfilling = new Set<Timestamp>()
  readonly #work = new Set<Promise<void>>()
  #sweeping: Promise<void> | undefined
  readonly #end = new AbortController()
  readonly rides: Rides

  private constructor(store: Store, cells: SharedCells, options: SharedObserversOptions) {
    this.#store = store
    this.#cells = cells
    this.#registrations = new RecordTable(store.system, OBSERVER_RECORDS)
    this.#options = options
    this.#random = options.random ?? Math.random
    this.#resolver = new LockResolver(store)
    const sources: RiderSources = {
      ...{ store, cells },
      observerOf: (name) => this.#find(name).observer,
      onAck: (id, key, fence) => this.#byId.get(id)?.acknowledged(key, fence),
      onSettled: (id, key, fence) => this.#byId.get(id)?.takenBack(key, fence),
      onConflict: (id) => {
        const observer = this.#byId.get(id)
        if (observer !== undefined) observer.conflicts++
      },
    }
    this.rides = async (request) => {
      const { acks = [], notify = [] } = request.riders
      await this.learn([...acks, ...notify].map(({ observer }) => observer))
      for (const { observer } of notify) await this.#inForce(this.#find(observer), request.signal)
      return sharedRide(sources, request)
    }
  }

  static async open(store: Store, cells: SharedCells, options: SharedObserversOptions): Promise<SharedObservers> {
    const observers = new SharedObservers(store, cells, options)
    cells.listen((id) => observers.#byId.get(id)?.wake())
    await cells.follow(() => observers.#load())
    observers.#sweep()
    return observers
  }

  // ---- What is registered

  async #load(): Promise<readonly Registered[]> {
    const beganMs = this.#store.time.elapsedMs()
    const records = await this.#registrations.load()
    const found: Registered[] = []
    const ids = new Set<Timestamp>()
    for (const stored of this.#registrations.values()) {
      const { id, name, sinceTs, options } = stored
      const observer = { id, name, range: keyRangeOf(stored.range), maxDepth: options.maxDepth, sinceTs }
      found.push(observer)
      if (sinceTs === 0) continue
      ids.add(id)
      this.#become(stored, observer)
      this.#backfill(name, records.get(nameOfBackfill(name)))
    }
    for (const [id, observer] of this.#byId) {
      if (ids.has(id)) continue
      this.#byId.delete(id)
      const { name } = observer.stored
      if (this.#byName.get(name) === observer) this.#byName.delete(name)
      observer.end(noSuchObserver(name))
    }
    this.#knownMs = beganMs
    return found
  }

  #become(stored: StoredObserver, registered: Registered): void {
    const present = this.#byId.get(stored.id)
    if (present !== undefined) {
      present.become(stored, registered)
      return
    }
    const sources = { store: this.#store, cells: this.#cells, resolver: this.#resolver, random: this.#random }
    const observer = new SharedObserver(sources, stored, registered)
    this.#byId.set(stored.id, observer)
    this.#byName.set(stored.name, observer)
  }

  learn(names: readonly string[]): undefined | Promise<void> {
    const isOld = this.#store.time.elapsedMs() - this.#knownMs > KNOWN_MS
    if (!isOld && names.every((name) => this.#byName.has(name))) return undefined
    return this.#cells.refresh()
  }

  #find(name: string): SharedObserver {
    const observer = this.#byName.get(name)
    if (observer === undefined) throw noSuchObserver(name)
    return observer
  }

  async #known(name: string): Promise<SharedObserver> {
    await this.learn([name])
    return this.#find(name)
  }

  async put(
    name: string,
    { range, backfill = false, ...given }: Registration,
  ): Promise<{ readonly state: ObserverState; readonly isNew: boolean }> {
    const keyRange = observedRangeOf(range)
    const options = optionsOf(given)
    requireName('observer', name)
    let isNew = false
    const decide = async (present: StoredObserver | undefined): Promise<StoredObserver> => {
      if (present !== undefined && !isSameRange(keyRangeOf(present.range), keyRange)) {
        const text = `the observer ${name} has another range: delete it first, or take another name`
        throw new KvError('already_exists', text, { observer: name })
      }
      if (present === undefined) await this.#requireRoom()
      isNew = present === undefined || present.sinceTs === 0
      const id = present?.id ?? (await this.#store.tso(1))
      return { id, name, range, options, sinceTs: present?.sinceTs ?? 0, isPaused: present?.isPaused ?? false }
    }
    await this.#registrations.change(name, decide, ({ id }) => (backfill ? [this.#wanted(name, id)] : []))
    if (isNew) await this.#takeEffect(name)
    await this.#cells.refresh()
    return { state: await this.#find(name).state(), isNew }
  }

  /** The record stands, so every server that commits is going to know it. */
  async #takeEffect(name: string, signal?: AbortSignal): Promise<void> {
    let ts = 0
    const { sinceTs } = await this.#registrations.change(name, async (present) => {
      const stored = required(name, present)
      ts = await this.#store.tso(1)
      return stored.sinceTs === 0 ? { ...stored, sinceTs: ts + timestampFromMs(this.#cells.registeringMs) } : stored
    })
    for (let now = ts; now <= sinceTs; now = await this.#store.tso(1))
      await this.#pause(Math.min(1000, physicalMs(sinceTs) - physicalMs(now) + 1), signal)
  }

  /** What is notified below its since_ts would not count. */
  async #inForce({ observer }: SharedObserver, signal?: AbortSignal): Promise<void> {
    if (observer.sinceTs >= this.#store.time.nextTsMin) await this.#takeEffect(observer.name, signal)
  }

  /** @throws KvError `storage_unavailable` when the server stops, and the reason of the caller's signal */
  async #pause(ms: number, signal?: AbortSignal): Promise<void> {
    const end = this.#end.signal
    await sleep(ms, signal === undefined ? end : AbortSignal.any([end, signal])).catch(() => {
      signal?.throwIfAborted()
      throw new KvError('storage_unavailable', 'the server stops: ask another one', {})
    })
  }

  async #requireRoom(): Promise<void> {
    const { observersMax } = this.#options.limits
    await this.#registrations.load()
    // With this one.
    if (this.#registrations.size > observersMax)
      throw new KvError('overloaded', `there are ${observersMax} observers already`, {})
  }

  async get(name: string): Promise<ObserverState> {
    await this.#cells.refresh()
    return this.#find(name).state()
  }

  async list(): Promise<readonly ObserverState[]> {
    return (await this.page({ limit: Number.POSITIVE_INFINITY })).items
  }

  async page(request: PageRequest, reaches?: (range: KeyRange) => boolean): Promise<Page<ObserverState>> {
    await this.#cells.refresh()
    return pageOfStates(this.#byName, request, reaches)
  }

  *counts(): Generator<ObserverCounts, void> {
    for (const [name, observer] of this.#byName) {
      const { acks, conflicts, summary } = observer
      yield { name, acks, conflicts, ...summary }
    }
  }

  summary(): ObserversSummary {
    const total = { pending: 0, pendingIsExact: false, claimed: 0, delayed: 0, parked: 0, lagMs: 0 }
    for (const counts of this.counts()) {
      total.pending += counts.pending
      total.claimed += counts.claimed
      total.delayed += counts.delayed
      total.parked += counts.parked
      total.lagMs = Math.max(total.lagMs, counts.lagMs)
    }
    return { count: this.#byName.size, ...total }
  }

  async remove(name: string): Promise<void> {
    await this.#known(name)
    const remove = (): undefined => {}
    await this.#registrations.change(name, remove, () => [{ name: nameOfBackfill(name), value: undefined }])
    await this.#cells.refresh()
    this.#sweep()
  }

  async backfill(name: string): Promise<ObserverState> {
    const { id } = await this.#known(name)
    await this.#store.system.write([this.#wanted(name, id)])
    await this.#cells.refresh()
    return this.#find(name).state()
  }

  pause(name: string): Promise<ObserverState> {
    return this.#setPaused(name, true)
  }

  resume(name: string): Promise<ObserverState> {
    return this.#setPaused(name, false)
  }

  async #setPaused(name: string, isPaused: boolean): Promise<ObserverState> {
    await this.#registrations.change(name, (present) => {
      const stored = required(name, present)
      return stored.isPaused === isPaused ? stored : { ...stored, isPaused }
    })
    await this.#cells.refresh()
    return this.#find(name).state()
  }

  // ---- Background work

  /** A backfill that is running goes on from the beginning. */
  #wanted(name: string, id: Timestamp): SystemWrite {
    const value = encodeProgress({ id, after: undefined, untilMs: 0 }, Math.floor(this.#random() * 2 ** 48))
    return { name: nameOfBackfill(name), value }
  }

  #backfill(name: string, record: Uint8Array | undefined): void {
    const observer = this.#byName.get(name)
    if (observer === undefined) return
    const progress = record && decodeProgress(record)
    const { id } = observer
    observer.isBackfilling = progress?.id === id
    const isFree = progress?.id === id && progress.untilMs <= physicalMs(this.#store.time.clock())
    if (!isFree || observer.stored.isPaused || this.#backfilling.has(id) || this.#end.signal.aborted) return
    this.#backfilling.add(id)
    const sources = {
      ...{ store: this.#store, cells: this.#cells, resolver: this.#resolver, random: this.#random },
    }
    const commit: SharedBackfillSources['commit'] = (mutationAt) => this.#commit(mutationAt)
    const isHeld = (): boolean => !this.#end.signal.aborted && this.#byId.get(id)?.stored.isPaused === false
    this.#inBackground(async () => {
      try {
        // A step may fail while the table is away, and the lease of a try before may still stand.
        while (isHeld()) {
          const left = await this.#store.system.get(nameOfBackfill(name)).catch(() => record)
          if (left === undefined || decodeProgress(left).id !== id) break
          await backfillShared({ ...sources, commit }, name, observer.observer, isHeld).catch((error) =>
            this.#report(error),
          )
          const after = await this.#store.system.get(nameOfBackfill(name)).catch(() => record)
          if (after !== undefined) await sleep(RETRY_MS, this.#end.signal).catch(() => {})
        }
      } finally {
        this.#backfilling.delete(id)
        observer.isBackfilling = false
      }
    })
  }

  /** Removes what deleted observers have left, now and again after a failure. */
  #sweep(): void {
    const { signal } = this.#end
    const before = this.#sweeping ?? Promise.resolve()
    const sweeping = before.then(async () => {
      for (let isDone = false; !isDone && !signal.aborted; ) {
        try {
          await this.#cells.sweep({ pause: (workedMs) => rest(workedMs, signal), signal })
          isDone = true
        } catch (error) {
          this.#report(error)
          if (!(error instanceof KvError)) return
          await sleep(RETRY_MS, signal).catch(() => {})
        }
      }
    })
    this.#sweeping = sweeping
  }

  #inBackground(body: () => Promise<void>): void {
    const work = body()
      .catch((error) => this.#report(error))
      .finally(() => this.#work.delete(work))
    this.#work.add(work)
  }

  #report(error: unknown): void {
    if (!this.#end.signal.aborted && !(error instanceof KvError)) this.#options.onError(error)
  }

  /** Tries again where others have rolled it back, because this process stood still for longer than its locks last. */
  async #commit(mutationAt: (startTs: Timestamp) => PrewriteMutation): Promise<Timestamp> {
    const backoff = new Backoff()
    for (let left = TRIES_MAX; ; left--) {
      const startTs = await this.#store.tso(1)
      const mutation = mutationAt(startTs)
      const plan = {
        ...{
          startTs,
          mutations: [mutation],
          startedAt: performance.now(),
          isFirst: false,
          lockWaitMs: LOCK_WAIT_MS_DEFAULT,
        },
        ...{ forUpdateTs: undefined, grantedAt: undefined, reads: undefined, signal: undefined },
        primary: mutation.key,
      }
      try {
        return await new Committer(this.#options.home(), plan).run()
      } catch (error) {
        const isConflict = isKvError(error, 'write_conflict') || isKvError(error, 'txn_lock_not_found')
        if (!isConflict || left === 0) throw error instanceof Undetermined ? error.cause : error
        await backoff.wait()
      }
    }
  }

  /** Answers waiting claims with nothing, and all later ones. Acknowledgements go on. */
  async close(): Promise<void> {
    this.#end.abort()
    for (const observer of this.#byId.values()) observer.end()
    await Promise.all([...this.#work, this.#sweeping])
  }

  /** What expires is hinted at when it is written and found clean. */
  async passTo(): Promise<void> {}

  /** An acknowledgement stays as long as its key: without it, changes that it has covered would count anew. */
  async collect(): Promise<void> {}

  // ---- Workers

  async claim(name: string, request: ClaimRequest): Promise<Notification[]> {
    const observer = await this.#known(name)
    return observer.claim(claimOrder(request, this.#byId.values()))
  }

  async extend(name: string, claims: readonly ClaimName[], ms?: number): Promise<ClaimName[]> {
    const asked = ms === undefined ? undefined : leaseMs(ms)
    return (await this.#known(name)).extend(claims, asked)
  }

  async release(
    name: string,
    claims: readonly Release[],
  ): Promise<{ readonly released: number; readonly parked: Uint8Array[] }> {
    for (const { retryAfterMs } of claims) integerOf('retry_after_ms', retryAfterMs ?? 0, 0, TIMER_MS_MAX)
    return (await this.#known(name)).release(claims)
  }

  // ---- Cells

  async notify(
    name: string,
    keys: readonly Uint8Array[],
  ): Promise<{ readonly notified: number; readonly ts: Timestamp }> {
    const known = await this.#known(name)
    const { id, observer } = known
    await this.#inForce(known)
    for (const [index, key] of keys.entries()) requireInRange(observer, key, () => `keys[${index}]`)
    const asked = await distinctKeys(keys)
    let ts = asked.length === 0 ? await this.#store.tso(1) : 0
    // Each key alone, so that its row may go when it is covered.
    for (let from = 0; from < asked.length; from += COMMITS_AT_ONCE) {
      const some = asked.slice(from, from + COMMITS_AT_ONCE)
      const all = some.map((key) => this.#commit((startTs) => notification({ id, key }, startTs, 'notified')))
      ts = Math.max(ts, ...(await Promise.all(all)))
    }
    return { notified: asked.length, ts }
  }

  async parked(
    name: string,
    { limit, after }: { readonly limit: number; readonly after?: Uint8Array | undefined },
  ): Promise<{ readonly parked: Parked[]; readonly next?: Uint8Array | undefined }> {
    const observer = await this.#known(name)
    const page = await this.#cells.failures(observer.id, { after, limit })
    const keys = page.filter(({ failure }) => failure.parkedTs > 0).map(({ key }) => key)
    const parked = (await observer.parkedOf(keys)).flatMap(({ key, failure }): Parked[] => {
      if (failure === undefined) return []
      const { changeTs, attempts, error, parkedTs } = failure
      return [{ key, commitTs: changeTs, attempts, error, parkedAtMs: physicalMs(parkedTs) }]
    })
    return page.length < limit ? { parked } : { parked, next: page.at(-1)?.key }
  }

  async retry(name: string, keys?: readonly Uint8Array[]): Promise<number> {
    const observer = await this.#known(name)
    if (keys !== undefined) return this.#retry(observer, await distinctKeys(keys))
    let count = 0
    for (let after: Uint8Array | undefined; ; ) {
      const page = await this.#cells.failures(observer.id, { after, limit: CELLS_AT_A_TIME })
      const parked = page.filter(({ failure }) => failure.parkedTs > 0)
      count += await this.#retry(
        observer,
        parked.map(({ key }) => key),
      )
      after = page.at(-1)?.key
      if (page.length < CELLS_AT_A_TIME) return count
    }
  }

  #retry(observer: SharedObserver, keys: readonly Uint8Array[]): Promise<number> {
    const { id } = observer
    const change = (cell: SharedCell): Promise<void> =>
      unpark(this.#cells, id, cell, { commitTs: cell.failure?.changeTs ?? 0, depth: 0 })
    return this.#eachParked(observer, keys, change, true)
  }

  async skip(name: string, keys: readonly Uint8Array[]): Promise<number> {
    const observer = await this.#known(name)
    return this.#eachParked(observer, await distinctKeys(keys), async (cell) => {
      await this.#commit((startTs) => ({ op: 'put', key: cell.ackKey, value: encodeAckTs(startTs) }))
      await this.#cells.replaceFailure(observer.id, cell, undefined)
    })
  }

  /** @returns the number of cells that were parked. */
  async #eachParked(
    observer: SharedObserver,
    keys: readonly Uint8Array[],
    change: (cell: SharedCell) => Promise<void>,
    orCovered = false,
  ): Promise<number> {
    let count = 0
    for (let from = 0; from < keys.length; from += CELLS_AT_A_TIME) {
      const parked = await observer.parkedOf(keys.slice(from, from + CELLS_AT_A_TIME), orCovered)
      await Promise.all(parked.map(change))
      count += parked.length
    }
    if (count > 0) observer.wake()
    return count
  }
}
