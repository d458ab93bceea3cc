import { LockResolver } from '../coordinator/lock-resolver.js'
import { KvError } from '../errors/kv-error.js'
import { rest } from '../event-loop/rest.js'
import { sleep } from '../event-loop/sleep.js'
import type { Cells } from '../store/cells.js'
import type { Store } from '../store/store.js'
import { existingKeys } from './existing-keys.js'
import { decodeBackfill, encodeBackfill, nameOfBackfill } from './registration.js'
import type { RegisteredObserver } from './rules/observer.js'

const KEYS_AT_A_TIME = 256
/** After a failure. Most are those of a store that is not available, or long locks. */
const RETRY_MS = 1000

export interface BackfillSources {
  readonly store: Store
  readonly cells: Cells
  /** From 0 to below 1. */
  readonly random: () => number
  readonly onError: (error: unknown) => void
}

/**
 * Marks the keys of an observer's range that exist already, in steps. The progress of each step is written with its marks, so a
 * restart goes on after the last one.
 */
export class Backfill {
  readonly #sources: BackfillSources
  readonly #observer: RegisteredObserver
  readonly #resolver: LockResolver
  /** Every key up to here is done. */
  #after: Uint8Array | undefined
  /** How often it has begun. */
  #begun = 0
  #abort: AbortController | undefined
  /** Never rejects. */
  #running: Promise<void> = Promise.resolve()
  #isWanted = false

  constructor(sources: BackfillSources, observer: RegisteredObserver) {
    this.#sources = sources
    this.#observer = observer
    this.#resolver = new LockResolver(sources.store)
  }

  /** Not complete. */
  get isWanted(): boolean {
    return this.#isWanted
  }

  /** Takes what is recorded, where it is asked for again or memory does not know it yet. The caller `run`s it. */
  async resume(): Promise<void> {
    const record = nameOfBackfill(this.#observer.name)
    const bytes = (await this.#sources.store.system.list(record)).get(record)
    const progress = bytes && decodeBackfill(bytes)
    if (progress?.id !== this.#observer.id) return // A name may be given to a new observer.
    if (this.#isWanted && progress.after !== undefined) return // One that is running has come further than its record.
    this.#isWanted = true
    this.#after = progress.after
    this.#begun++
  }

  /** Goes on, in the background. */
  run(): void {
    if (!this.#isWanted || this.#abort !== undefined) return
    const abort = new AbortController()
    this.#abort = abort
    this.#running = this.#running.then(() => this.#steps(abort.signal))
  }

  /** Ends it after its present step. */
  stop(): Promise<void> {
    this.#abort?.abort()
    this.#abort = undefined
    return this.#running
  }

  async #steps(signal: AbortSignal): Promise<void> {
    while (this.#isWanted && !signal.aborted) {
      const begin = performance.now()
      try {
        await this.#step(signal)
        await rest(performance.now() - begin, signal)
      } catch (error) {
        if (signal.aborted) return
        if (!(error instanceof KvError)) this.#sources.onError(error)
        await sleep(RETRY_MS, signal).catch(() => {})
      }
    }
    if (!signal.aborted) this.#abort = undefined
  }

  async #step(signal: AbortSignal): Promise<void> {
    const { store, cells, random } = this.#sources
    const { id, name, range } = this.#observer
    const after = this.#after
    const begun = this.#begun
    const { keys } = await existingKeys(store, this.#resolver, { range, after, limit: KEYS_AT_A_TIME, signal })
    const isCurrent = (): boolean => this.#begun === begun && !signal.aborted
    const last = keys.at(-1)
    if (last === undefined) {
      if (!isCurrent()) return
      await store.system.write([{ name: nameOfBackfill(name), value: undefined }])
      if (this.#begun === begun) this.#isWanted = false
      return
    }
    const isDone = await cells.change(id, keys, (found, ts) => {
      if (!isCurrent()) return { value: false, changes: [] }
      const clean = found.filter(({ entry }) => entry === undefined)
      return {
        value: true,
        changes: clean.map(({ key }) => ({ key, entry: { changeTs: ts, kind: 'backfill', depth: 0 } })),
        beside: [{ name: nameOfBackfill(name), value: encodeBackfill({ id, after: last }, random) }],
      }
    })
    if (isDone && this.#begun === begun) this.#after = last
  }
}
