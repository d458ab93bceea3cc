import { commitRow } from '../../coordinator/commit-row.js'
import type { TransactionContext } from '../../coordinator/committer.js'
import type { EffectRowsRequest, EffectsAsRows } from '../../coordinator/effect-rows.js'
import { KvError } from '../../errors/kv-error.js'
import { sleep } from '../../event-loop/sleep.js'
import type { HintedCells } from '../../store/hinted-cells.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { DirtyKeys, DirtyKeysSources } from '../dirty-keys.js'
import { nameOfBackfill, registeredOf, type StoredObserver } from '../registration.js'
import { noSuchObserver, type RegisteredObserver } from '../rules/observer.js'
import { effectsAsRows } from './effects-as-rows.js'
import { HintedObserver, type HintedObserverSources } from './hinted-observer.js'

/** `learn` relies on registrations that were read within this time. */
const KNOWN_MS = 1000

/** The dirty keys of a store with several servers: commits write hints at keys that may be dirty. */
export class HintedKeys implements DirtyKeys {
  readonly #sources: DirtyKeysSources
  readonly #observerSources: HintedObserverSources
  readonly #cells: HintedCells
  readonly #byId = new Map<Timestamp, HintedObserver>()
  /** Time at which the known registrations were read. */
  #knownMs = Number.NEGATIVE_INFINITY
  readonly effectsAsRows: EffectsAsRows = (request) => this.#effectRows(request)

  constructor(sources: DirtyKeysSources, cells: HintedCells, context: () => TransactionContext) {
    this.#sources = sources
    this.#cells = cells
    this.#observerSources = {
      ...sources,
      cells,
      commit: (mutationAt) => commitRow(context(), mutationAt),
      inForce: (observer) => this.#inForce(observer),
    }
  }

  async open(): Promise<void> {
    this.#cells.listen((id) => this.#byId.get(id)?.wake())
    await this.#cells.follow(() => this.#load())
  }

  async #effectRows(request: EffectRowsRequest): ReturnType<EffectsAsRows> {
    const { acks = [], notify = [] } = request.commitEffects
    await this.refreshIfUnknown([...acks, ...notify].map(({ observer }) => observer))
    for (const { observer } of notify) await this.#inForce(this.#named(observer).observer, request.signal)
    const { store } = this.#sources
    return effectsAsRows({ store, cells: this.#cells, named: (name) => this.#named(name) }, request)
  }

  #named(name: string): HintedObserver {
    const id = this.#sources.registrations.get(name)?.id
    const observer = id === undefined ? undefined : this.#byId.get(id)
    if (observer === undefined) throw noSuchObserver(name)
    return observer
  }

  // ---- Registrations

  async #load(): Promise<readonly RegisteredObserver[]> {
    const { store, registrations } = this.#sources
    const beganMs = store.time.elapsedMs()
    const records = await registrations.load()
    for (const { backfill, stored } of this.#byId.values()) backfill.read(records.get(nameOfBackfill(stored.name)))
    this.#knownMs = beganMs
    return [...registrations.values()].map(registeredOf)
  }

  refreshIfUnknown(names: readonly string[]): undefined | Promise<void> {
    const { store, registrations } = this.#sources
    const isOld = store.time.elapsedMs() - this.#knownMs > KNOWN_MS
    if (!isOld && names.every((name) => (registrations.get(name)?.sinceTs ?? 0) > 0)) return undefined
    return this.refresh()
  }

  refresh(): Promise<void> {
    return this.#cells.refresh()
  }

  async register(): Promise<Timestamp> {
    return 0
  }

  async written(stored: StoredObserver | undefined): Promise<void> {
    this.#cells.announce()
    if (stored?.sinceTs === 0) await this.#takeEffect(stored.name)
    await this.refresh()
    if (stored === undefined) this.#sources.sweep()
  }

  /** Sets `sinceTs` to the time when every server is sure to know the record, and waits for it. */
  async #takeEffect(name: string, signal?: AbortSignal): Promise<void> {
    const { store, registrations } = this.#sources
    let ts = 0
    const { sinceTs } = await registrations.change(name, async (stored) => {
      if (stored === undefined) throw noSuchObserver(name)
      ts = await store.tso(1)
      return stored.sinceTs === 0 ? { ...stored, sinceTs: ts + timestampFromMs(this.#cells.registeringMs) } : stored
    })
    for (let now = ts; now <= sinceTs; now = await store.tso(1))
      await this.#pause(Math.min(1000, physicalMs(sinceTs) - physicalMs(now) + 1), signal)
  }

  /** Waits until the clock has passed `sinceTs`: notifications below it would not count. */
  async #inForce({ name, sinceTs }: RegisteredObserver, signal?: AbortSignal): Promise<void> {
    if (sinceTs >= this.#sources.store.time.nextTsMin) await this.#takeEffect(name, signal)
  }

  /** @throws KvError `storage_unavailable` when the server stops; the abort reason of the caller's signal. */
  async #pause(ms: number, signal?: AbortSignal): Promise<void> {
    const end = this.#sources.signal
    await sleep(ms, signal === undefined ? end : AbortSignal.any([end, signal])).catch(() => {
      signal?.throwIfAborted()
      throw new KvError('storage_unavailable', 'the server stops: ask another one', {})
    })
  }

  known(stored: StoredObserver): HintedObserver {
    const present = this.#byId.get(stored.id)
    present?.become(stored)
    const observer = present ?? new HintedObserver(this.#observerSources, stored)
    this.#byId.set(stored.id, observer)
    return observer
  }

  forget(_name: string, id: Timestamp | undefined): void {
    if (id !== undefined) this.#byId.delete(id)
  }

  /** Nothing to do: expiries are hinted at when the version is written, and again when the cell is found clean. */
  async passTo(): Promise<void> {}

  /** Nothing to do: an acknowledgement stays as long as its key. Without it, covered changes would count again. */
  async collect(): Promise<void> {}

  async close(): Promise<void> {}
}
