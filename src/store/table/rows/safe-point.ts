import { KvError } from '../../../errors/kv-error.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { Clock } from '../../../oracle/clock.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { Timestamp } from '../../../timestamp.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import { recordAt } from '../layout/record-at.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import type { Table } from '../layout/table.js'
import { decodeSafePoint, encodeSafePoint, type SafePointRecord } from './safe-point-record.js'

/** In seconds of `secondMs` each. */
const POLL_S = 1
const STALE_S = 30
const KNOWN_TO_ALL_S = 60
const SECOND_MS = 1000

export interface SafePointOptions {
  readonly table: Table
  readonly clock: Pick<Clock, 'elapsedMs'>
  readonly source: Pick<TimestampSource, 'next'>
  /** For tests: time until all servers know a raised safe point. Default: 60 s. */
  readonly knownToAllMs?: number | undefined
  /** Transactions that began below it are refused, because a restore has come in between. Default: 0. */
  readonly restored?: (() => Timestamp) | undefined
}

/** Contents of the row, and when this process saw them by its own clock. */
interface Reading {
  readonly atMs: number
  readonly safePoint: Timestamp
  readonly cleared: Timestamp
}

/**
 * The safe point that the servers of a table share: one row, which every server polls. Transactions below it are refused at once
 * by the server that raised it, and by the others as soon as they read the row. A server whose copy is older than 30 s reads the
 * row before it goes on. So every acting server knows what the row has held for 60 s. Each server measures both times by its own
 * clock, from its own reads: README.md in this folder has the argument.
 */
export class SafePoint {
  readonly #table: Table
  readonly #clock: Pick<Clock, 'elapsedMs'>
  readonly #source: Pick<TimestampSource, 'next'>
  readonly #key = rowKeyOfSystem('safe-point')
  readonly #knownToAllMs: number | undefined
  readonly #restored: () => Timestamp
  readonly #closed = new AbortController()
  #record: SafePointRecord = { safePoint: 0, cleared: 0, secondMs: undefined }
  /** Start of the newest copy's read, by both clocks of this process. */
  #readAt: { readonly elapsedMs: number; readonly wallMs: number } | undefined
  /** Oldest first. The first one is at least `knownToAllMs` old, if any is. */
  #readings: readonly Reading[] = []
  #refreshing: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined

  constructor({ table, clock, source, knownToAllMs, restored = () => 0 }: SafePointOptions) {
    this.#restored = restored
    this.#table = table
    this.#clock = clock
    this.#source = source
    this.#knownToAllMs = knownToAllMs
  }

  /** Transactions and reads below it are refused. */
  get value(): Timestamp {
    return Math.max(this.#record.safePoint, this.#restored())
  }

  /** No lock of a transaction below it counts any more, and records that no reader at or above it sees may be removed. */
  get cleared(): Timestamp {
    return this.#record.cleared
  }

  /** The highest `cleared` that every server knows. */
  get clearedForAll(): Timestamp {
    return this.#knownToAll()?.cleared ?? 0
  }

  get secondMs(): number {
    return this.#record.secondMs ?? SECOND_MS
  }

  /** Reads the row now, and every second from now on. @throws KvError `storage_unavailable` */
  async start(): Promise<void> {
    await this.#refresh()
    const poll = (): void => {
      this.#timer = setTimeout(() => {
        void this.#refresh()
          .catch(() => {}) // A caller that needs a newer copy reads the row itself.
          .then(() => {
            if (!this.#closed.signal.aborted) poll()
          })
      }, POLL_S * this.secondMs)
      this.#timer.unref()
    }
    if (!this.#closed.signal.aborted) poll()
  }

  /**
   * Await after rows were read, and before any conclusion from them.
   * @returns undefined when the copy is young enough.
   * @throws KvError `storage_unavailable` when the row cannot be read.
   */
  fresh(): undefined | Promise<void> {
    return this.isStale ? this.#refresh() : undefined
  }

  /** True when `fresh` has to wait. */
  get isStale(): boolean {
    const at = this.#readAt
    if (at === undefined) return true
    // The monotonic clock may stop while the machine is suspended, and the wall clock may be set, so the greater age counts.
    const ageMs = Math.max(this.#clock.elapsedMs() - at.elapsedMs, Math.abs(Date.now() - at.wallMs))
    return ageMs > STALE_S * this.secondMs
  }

  /**
   * Raises the safe point, and waits until every server knows it.
   * @param wanted capped at the newest timestamp.
   * @param signal ends the wait.
   * @returns the safe point in force if it is above `wanted`; otherwise the raised one, perhaps below `wanted`, because some
   *   servers may not know a higher one yet.
   * @throws KvError `storage_unavailable`
   */
  async raise(wanted: Timestamp, signal?: AbortSignal): Promise<Timestamp> {
    const safePoint = Math.min(wanted, await this.#source.next())
    await this.#swap((record) => (record.safePoint >= safePoint ? undefined : { ...record, safePoint }))
    await this.#untilKnownToAll(safePoint, signal)
    return this.value > wanted ? this.value : safePoint
  }

  /** Call when all locks below `safePoint`, which was raised before, are resolved. */
  async clear(safePoint: Timestamp): Promise<void> {
    const cleared = Math.min(safePoint, this.#knownToAll()?.safePoint ?? 0)
    await this.#swap((record) => (record.cleared >= cleared ? undefined : { ...record, cleared }))
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#closed.abort(new KvError('storage_unavailable', 'the store is closed', {}))
  }

  async #untilKnownToAll(safePoint: Timestamp, signal?: AbortSignal): Promise<void> {
    const until = AbortSignal.any([this.#closed.signal, ...(signal === undefined ? [] : [signal])])
    while (!signal?.aborted) {
      this.#closed.signal.throwIfAborted()
      if ((this.#knownToAll()?.safePoint ?? 0) >= safePoint) return
      const seen = this.#readings.find((reading) => reading.safePoint >= safePoint) as Reading
      await sleep(Math.max(1, seen.atMs + this.#knownToAllAfterMs - this.#clock.elapsedMs()), until).catch(() => {})
    }
  }

  get #knownToAllAfterMs(): number {
    return this.#knownToAllMs ?? KNOWN_TO_ALL_S * this.secondMs
  }

  /** The newest reading that all servers know. */
  #knownToAll(): Reading | undefined {
    const latestMs = this.#clock.elapsedMs() - this.#knownToAllAfterMs
    return this.#readings.findLast(({ atMs }) => atMs <= latestMs)
  }

  #refresh(): Promise<void> {
    this.#refreshing ??= this.#read()
      .then(() => {})
      .finally(() => {
        this.#refreshing = undefined
      })
    return this.#refreshing
  }

  /** @returns the bytes in the row. */
  async #read(): Promise<Buffer | undefined> {
    const began = { elapsedMs: this.#clock.elapsedMs(), wallMs: Date.now() }
    const bytes = await recordAt(this.#table, this.#key)
    if (bytes !== undefined) this.#note(decodeSafePoint(bytes))
    // Of two overlapping reads, the earlier one may end last.
    if (this.#readAt === undefined || began.elapsedMs >= this.#readAt.elapsedMs) this.#readAt = began
    return bytes
  }

  /** Both values only rise. */
  #note({ safePoint, cleared, secondMs }: SafePointRecord): void {
    this.#record = {
      safePoint: Math.max(safePoint, this.#record.safePoint),
      cleared: Math.max(cleared, this.#record.cleared),
      secondMs,
    }
    const last = this.#readings.at(-1)
    const { safePoint: newest, cleared: newestCleared } = this.#record
    if (last !== undefined && last.safePoint >= newest && last.cleared >= newestCleared) return
    const knownToAll = this.#knownToAll()
    const kept = knownToAll === undefined ? this.#readings : this.#readings.slice(this.#readings.indexOf(knownToAll))
    this.#readings = [...kept, { atMs: this.#clock.elapsedMs(), safePoint: newest, cleared: newestCleared }]
  }

  /** @param next returns undefined when no change is needed. */
  async #swap(next: (record: SafePointRecord) => SafePointRecord | undefined): Promise<void> {
    for (;;) {
      const bytes = await this.#read()
      const wanted = next(
        bytes === undefined ? { safePoint: 0, cleared: 0, secondMs: undefined } : decodeSafePoint(bytes),
      )
      if (wanted === undefined) return
      const expected = { family: 'o', qualifier: RECORD, value: bytes } as const
      const writes = [{ family: 'o', qualifier: RECORD, value: encodeSafePoint(wanted) }] as const
      // The next read of the row shows whether an earlier try landed, because no value ever falls.
      const certainty = { isDone: async () => false }
      if (await certainChange(this.#table, this.#key, expected, writes, certainty)) return this.#note(wanted)
    }
  }
}
