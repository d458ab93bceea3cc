import { afterKey, type KeyRange } from '../bytes/key-range.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import { SnapshotReader } from '../coordinator/snapshot-reader.js'
import { KvError } from '../errors/kv-error.js'
import { rest } from '../event-loop/rest.js'
import { sleep } from '../event-loop/sleep.js'
import { LOCK_WAIT_MS_DEFAULT } from '../limits.js'
import type { Cells } from '../store/cells.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { encodeBackfill, nameOfBackfill } from './registration.js'

const KEYS_AT_A_TIME = 256
/** After a failure. Most are those of a store that is not available, or long locks. */
const RETRY_MS = 1000

export interface BackfillSources {
  readonly store: Store
  readonly cells: Cells
  readonly onError: (error: unknown) => void
}

interface BackfilledObserver {
  readonly id: Timestamp
  readonly name: string
  readonly range: KeyRange
}

/**
 * Marks the keys of an observer's range that exist already, in steps. The progress of each step is written with its marks, so a
 * restart goes on after the last one.
 */
export class Backfill {
  readonly #sources: BackfillSources
  readonly #observer: BackfilledObserver
  /** Every key up to here is done. */
  #after: Uint8Array | undefined
  /** How often it has begun. */
  #begun = 0
  #abort: AbortController | undefined
  /** Never rejects. */
  #running: Promise<void> = Promise.resolve()
  #isWanted = false

  constructor(sources: BackfillSources, observer: BackfilledObserver) {
    this.#sources = sources
    this.#observer = observer
  }

  /** Not complete. */
  get isWanted(): boolean {
    return this.#isWanted
  }

  /** The caller has written a record of it, and `run`s it. One that is running begins again. */
  want(after?: Uint8Array): void {
    this.#isWanted = true
    this.#after = after
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
    const { store, cells } = this.#sources
    const { id, name, range } = this.#observer
    const after = this.#after
    const begun = this.#begun
    const reader = new SnapshotReader(store, new LockResolver(store), await store.readTs(), {
      lockWaitMs: LOCK_WAIT_MS_DEFAULT,
      signal,
    })
    const start = after === undefined ? range.start : afterKey(after)
    const { pairs } = await reader.scan({ start, end: range.end, limit: KEYS_AT_A_TIME, keyOnly: true })
    const isCurrent = (): boolean => this.#begun === begun && !signal.aborted
    const last = pairs.at(-1)?.key
    if (last === undefined) {
      if (!isCurrent()) return
      await store.system.write([{ name: nameOfBackfill(name), value: undefined }])
      if (this.#begun === begun) this.#isWanted = false
      return
    }
    const keys = pairs.map(({ key }) => key)
    const isDone = await cells.change(id, keys, (found, ts) => {
      if (!isCurrent()) return { value: false, changes: [] }
      const clean = found.filter(({ entry }) => entry === undefined)
      return {
        value: true,
        changes: clean.map(({ key }) => ({ key, entry: { changeTs: ts, kind: 'backfill', depth: 0 } })),
        beside: [{ name: nameOfBackfill(name), value: encodeBackfill({ id, after: last }) }],
      }
    })
    if (isDone && this.#begun === begun) this.#after = last
  }
}
