import { KvError } from '../../errors/kv-error.js'
import { sleep } from '../../event-loop/sleep.js'
import { asInteger, packRecord, unpackRecord } from '../../percolator/codec/record.js'
import type { PromptLog } from '../../store/change-log.js'
import type { MarkedCells } from '../../store/marked-cells.js'
import type { Store } from '../../store/store.js'
import type { SystemName, SystemWrite } from '../../store/system-records.js'
import type { Timestamp } from '../../timestamp.js'

/** Interval at which expired versions are looked for in memory, while an observer is registered. */
const LOOK_MS = 100
/** How long a collection waits for batches in flight. */
const WAIT_MS_MAX = 3000
const WAIT_MS = 10

/** Stores the timestamp up to which expired versions have marked their keys. */
const CURSOR: SystemName = 'expiry/cursor'

export interface ExpiryMarksSources {
  readonly store: Pick<Store, 'observed' | 'system' | 'time' | 'readTs'>
  readonly cells: MarkedCells
  readonly log: PromptLog
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

/**
 * Marks the cells of observed keys whose versions have expired. Nothing is written when a version expires, so this follows the
 * expiries up to resolved_ts, below which no commit can replace a version before it expires. It pauses while no observer is
 * registered, and takes no resolved_ts while nothing expires.
 */
export class ExpiryMarks {
  readonly #sources: ExpiryMarksSources
  #timer: NodeJS.Timeout | undefined
  #isLooking = false
  /** Work runs one after the other. Never rejects. */
  #last: Promise<void> = Promise.resolve()
  /** undefined: not read from disk yet. */
  #cursor: Timestamp | undefined
  #isClosed = false

  constructor(sources: ExpiryMarksSources) {
    this.#sources = sources
  }

  /** Starts the interval. Call when an observer is registered. */
  run(): void {
    if (this.#timer !== undefined || this.#isClosed) return
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
    this.#timer.unref()
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#rest()
    await this.#last
  }

  #rest(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #look(): void {
    const { store, log, onError } = this.#sources
    const { oldest } = store.observed
    if (oldest === undefined) {
      this.#rest()
      return
    }
    if (this.#isLooking || !log.mayExpire(Math.max(this.#cursor ?? 0, oldest), store.time.clock())) return
    this.#isLooking = true
    this.#alone(() => this.#advance())
      .catch((error) => {
        if (!this.#isClosed && !(error instanceof KvError)) onError(error)
      })
      .finally(() => {
        this.#isLooking = false
      })
  }

  #alone(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => {})
    return done
  }

  /** Marks what has expired up to now, as far as no lock is in the way. @throws KvError `storage_unavailable` */
  async #advance(): Promise<void> {
    const { store, log } = this.#sources
    const since = await this.#begin()
    if (since === undefined) return
    await log.begin()
    await store.readTs()
    await this.#markUpTo(since, log.resolve(), () => this.#isClosed)
  }

  /**
   * Marks what has expired at or below `safePoint`, before a collection removes the versions. There must be no locks of
   * transactions that could still commit there.
   * @throws KvError `storage_unavailable`; `overloaded` when commits in flight do not end.
   */
  async passTo(safePoint: Timestamp): Promise<void> {
    if (this.#sources.store.observed.oldest === undefined) return
    await this.#alone(() => this.#passTo(safePoint))
  }

  async #passTo(safePoint: Timestamp): Promise<void> {
    const { store, log } = this.#sources
    const since = await this.#begin()
    if (since === undefined || !log.mayExpire(since, safePoint)) return
    await log.begin()
    for (let waitedMs = 0; ; waitedMs += WAIT_MS) {
      await store.readTs()
      const resolved = log.resolve()
      // A transaction that began at the safe point commits above it.
      if (resolved >= safePoint - 1) return this.#markUpTo(since, Math.max(resolved, safePoint))
      if (waitedMs >= WAIT_MS_MAX)
        throw new KvError('overloaded', 'commits in flight keep the expiries for observers from being marked', {})
      await sleep(WAIT_MS)
    }
  }

  /** @returns where the marks begin; undefined when no observer is registered any more. */
  async #begin(): Promise<Timestamp | undefined> {
    const { observed, system } = this.#sources.store
    if (this.#cursor === undefined) {
      const record = await system.get(CURSOR)
      this.#cursor = record === undefined ? 0 : decodeCursor(record)
    }
    // No observer needs expiries from before the first of them was registered.
    return observed.oldest && Math.max(this.#cursor, observed.oldest)
  }

  /** @param upTo no transaction commits at or below it any more. @param isOver ends the work early. */
  async #markUpTo(since: Timestamp, upTo: Timestamp, isOver = (): boolean => false): Promise<void> {
    if (upTo <= since) return
    const { log, store, cells } = this.#sources
    for await (const page of log.expiries(since, upTo, {
      isWanted: (key) => store.observed.at(key).length > 0,
      isLenient: true,
    })) {
      if (isOver()) return
      // More keys may expire at the last timestamp. After a crash they are all compared with their acknowledgements again.
      const passed = (page.at(-1)?.commitTs ?? upTo) - 1
      await cells.markExpired(page, [cursorAt(passed)])
      this.#cursor = Math.max(this.#cursor ?? 0, passed)
    }
    this.#cursor = Math.max(this.#cursor ?? 0, upTo)
  }
}

function cursorAt(ts: Timestamp): SystemWrite {
  return { name: CURSOR, value: packRecord([ts]) }
}

function decodeCursor(bytes: Uint8Array): Timestamp {
  return asInteger(unpackRecord(bytes, 'expiry', 1)[0], 'expiry')
}
