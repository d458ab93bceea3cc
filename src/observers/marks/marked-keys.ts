import type { MarkedCells } from '../../store/marked-cells.js'
import type { Pace } from '../../store/pace.js'
import type { Timestamp } from '../../timestamp.js'
import type { DirtyKeys, DirtyKeysSources } from '../dirty-keys.js'
import { nameOfBackfill, registeredOf, type StoredObserver } from '../registration.js'
import type { Observer } from '../rules/observer.js'
import { CellBudget } from './cell-budget.js'
import { collectAcks } from './collect-acks.js'
import type { DispatcherSizes } from './dispatcher.js'
import { ExpiryMarks } from './expiry-marks.js'
import { MarkedObserver, type MarkedObserverSources } from './marked-observer.js'

/** The dirty keys of a store that one process has to itself: commits write marks in their batches, and report them here. */
export class MarkedKeys implements DirtyKeys {
  readonly #sources: DirtyKeysSources
  readonly #observerSources: MarkedObserverSources
  readonly #byId = new Map<Timestamp, MarkedObserver>()
  /** Reads the position of backfills whose registrations were read or written. Never rejects. */
  #resuming: Promise<void> = Promise.resolve()
  readonly #expiryMarks: ExpiryMarks
  readonly effectsAsRows = undefined

  constructor(sources: DirtyKeysSources, cells: MarkedCells, claimsMax: number, sizes: DispatcherSizes | undefined) {
    const { store, report: onError } = sources
    this.#sources = sources
    const budget = new CellBudget(claimsMax)
    this.#observerSources = { ...sources, cells, budget, sizes }
    const { prompt: log } = store.log
    if (log === undefined) throw new Error('marks need a store that sees all commits')
    this.#expiryMarks = new ExpiryMarks({ store, cells, log, onError })
  }

  async open(): Promise<void> {
    const { store, registrations } = this.#sources
    store.observed.onReload(() => {
      for (const observer of this.#byId.values()) observer.unload()
      this.#reload().catch((error) => this.#sources.report(error))
    })
    await registrations.load()
    await this.#resuming
    void this.#begin()
  }

  /** Loads one observer after the other. A claim does not wait for the others. */
  async #begin(): Promise<void> {
    for (const observer of this.#byId.values()) await observer.load().catch((error) => this.#sources.report(error))
  }

  /** Reloads one observer after the other, after the database was reopened. */
  async #reload(): Promise<void> {
    await this.#readInDoubt()
    for (const observer of this.#byId.values()) await observer.reload().catch((error) => this.#sources.report(error))
  }

  async #readInDoubt(): Promise<void> {
    const { registrations, report } = this.#sources
    await registrations.readInDoubt().catch((error) => report(error))
  }

  // ---- Registrations

  /** Nothing to do: only this process registers observers. */
  refreshIfUnknown(): undefined {}

  refresh(): undefined {}

  /**
   * Starts marking in one turn: every commit above a timestamp taken after it is marked, even while the write of the record is
   * in doubt.
   */
  async register(observer: Observer): Promise<Timestamp> {
    const { store } = this.#sources
    store.observed.register(observer)
    this.#expiryMarks.run()
    try {
      return await store.tso(1)
    } catch (error) {
      this.forget(observer.name, observer.id)
      throw error
    }
  }

  written(): Promise<void> {
    return this.#resuming
  }

  known(stored: StoredObserver): MarkedObserver {
    const present = this.#byId.get(stored.id)
    const observer = present ?? new MarkedObserver(this.#observerSources, stored)
    this.#byId.set(stored.id, observer)
    this.#sources.store.observed.register(registeredOf(stored), observer)
    this.#expiryMarks.run()
    this.#resuming = this.#resuming.then(() => this.#resume(observer)).catch(this.#sources.report)
    present?.become(stored)
    return observer
  }

  async #resume({ stored, backfill }: MarkedObserver): Promise<void> {
    const record = nameOfBackfill(stored.name)
    backfill.read((await this.#sources.store.system.list(record)).get(record))
  }

  /** Marks have gone on while the removal was in doubt, so `since_ts` is still true. */
  forget(name: string, known: Timestamp | undefined): void {
    const { store, sweep } = this.#sources
    const id = known ?? store.observed.named(name)?.id
    if (id !== undefined) {
      store.observed.unregister(id)
      this.#byId.delete(id)
    }
    sweep()
  }

  // ---- Upkeep

  passTo(ts: Timestamp): Promise<void> {
    return this.#expiryMarks.passTo(ts)
  }

  /** Removes acknowledgements that no run can conflict with. */
  async collect(safePoint: Timestamp, pace?: Pace): Promise<void> {
    await this.#readInDoubt()
    for (const observer of [...this.#byId.values()]) {
      if (!observer.hasAcks) continue
      observer.hasAcks = false // Set before the walk, because acknowledgements during it set it again.
      let isEmpty = false
      try {
        isEmpty = await collectAcks(this.#observerSources.cells, observer.id, safePoint, pace)
      } finally {
        if (!isEmpty) observer.hasAcks = true
      }
    }
  }

  close(): Promise<void> {
    return this.#expiryMarks.close()
  }
}
