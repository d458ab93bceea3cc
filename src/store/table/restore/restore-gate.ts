import { KvError } from '../../../errors/kv-error.js'
import { backgroundTimer } from '../../../event-loop/background-timer.js'
import type { Timestamp } from '../../../timestamp.js'
import { decodeFormat, FIRST_FORMAT, FORMAT_KEY } from '../format/format-row.js'
import { recordsAt } from '../layout/record-at.js'
import type { Table } from '../layout/table.js'
import {
  changeRestoreRecord,
  NO_RESTORE,
  RESTORE_KEY,
  type RestoreRecord,
  type RestoreRun,
  restoreRecordOf,
} from './restore-row.js'

const POLL_MS = 1000
/** Maximum age of the copy of the row on which a server serves. */
const COPY_MS_MAX = 3000

export interface RestoreGateOptions {
  readonly nowMs?: (() => number) | undefined
  readonly copyMsMax?: number | undefined
  /** Why this server must not serve a table whose row of the format has this value. Each look reads it, by the same call. */
  readonly misfitOf?: ((format: Buffer | undefined) => string | undefined) | undefined
  /** Called once, with why this server must not serve the table any more. */
  readonly onEnd?: ((message: string) => void) | undefined
}

/**
 * This server's copy of the row that says whether a restore is incomplete, and of the row that says whether it may serve the
 * table at all.
 *
 * A restore puts a marker there, and touches no row of a user before `quietMs` have passed. Suppose a copy is at most `copyMsMax`
 * old and shows no marker. Then no pair of a restore had been written when the server asked: what it has read is no half of a
 * restore, and a write on the condition that the row is as it was read cannot replace a pair. Clocks are never compared; they
 * only have to run at the same pace.
 */
export class RestoreGate {
  readonly #table: Table
  readonly #nowMs: () => number
  readonly #copyMsMax: number
  readonly #misfitOf: (format: Buffer | undefined) => string | undefined
  readonly #onEnd: (message: string) => void
  #fault: string | undefined
  #isOver = false
  /** Of the newest read, and when the first one that showed it was answered. */
  #seen = { format: FIRST_FORMAT.format, atMs: Number.NEGATIVE_INFINITY }
  #formatBefore = FIRST_FORMAT.format
  #record: RestoreRecord = NO_RESTORE
  /** Start of the newest read that showed this record. */
  #asOfMs = Number.NEGATIVE_INFINITY
  #polling: Promise<void> | undefined
  #stopTimer = (): void => {}
  #isClosed = false

  /** @param table without a gate. */
  constructor(table: Table, options: RestoreGateOptions = {}) {
    const { nowMs = () => performance.now(), copyMsMax = COPY_MS_MAX } = options
    this.#table = table
    this.#misfitOf = options.misfitOf ?? (() => undefined)
    this.#onEnd = options.onEnd ?? (() => {})
    this.#nowMs = nowMs
    this.#copyMsMax = copyMsMax
  }

  /** After this many milliseconds every server has either seen a marker, or refuses calls until it has read the row. */
  get quietMs(): number {
    return this.#copyMsMax * (4 / 3)
  }
  get run(): RestoreRun | undefined {
    return this.#record.run
  }
  /** Why this server must not serve the table any more. Once set, it stays. */
  get fault(): string | undefined {
    return this.#fault
  }
  /** In which this server may write: `quietMs` after it has seen a format, nobody acts any more who does not know it. */
  get format(): number {
    return this.#nowMs() - this.#seen.atMs >= this.quietMs ? this.#seen.format : this.#formatBefore
  }
  /** As the table has it. */
  get seenFormat(): number {
    return this.#seen.format
  }
  get safePoint(): Timestamp {
    return this.#record.safePoint
  }

  /** Reads the row now, and every second from now on. */
  async start(): Promise<void> {
    await this.refresh()
    this.#pollLater()
  }

  close(): void {
    this.#isClosed = true
    this.#stopTimer()
  }

  /** Nothing of the table is served or changed any more. `end` should follow. */
  refuse(message: string): void {
    this.#fault ??= message
  }

  /** As `refuse`, and this server ends. */
  end(message: string): void {
    this.refuse(message)
    if (this.#isOver) return
    this.#isOver = true
    this.#onEnd(this.#fault ?? message)
  }

  #pollLater(): void {
    if (this.#isClosed) return
    this.#stopTimer = backgroundTimer(POLL_MS, () => void this.#pollSoon().then(() => this.#pollLater()))
  }

  /** @returns the record of a read that begins now. @throws KvError `storage_unavailable`; CorruptRecord */
  async refresh(): Promise<RestoreRecord> {
    const beganMs = this.#nowMs()
    const [restore, format] = await recordsAt(this.#table, [RESTORE_KEY, FORMAT_KEY])
    const misfit = this.#misfitOf(format)
    if (misfit !== undefined) this.end(misfit)
    else this.#noteFormat(format === undefined ? FIRST_FORMAT.format : decodeFormat(format).format)
    const record = restoreRecordOf(restore)
    this.#note(record, beganMs)
    return record
  }

  /**
   * Changes the row for a restore.
   * @throws KvError `storage_unavailable` when another server has changed it, or the outcome is unknown.
   */
  async change<C extends Pick<RestoreRecord, 'safePoint' | 'run'>>(
    before: RestoreRecord,
    change: C,
  ): Promise<RestoreRecord & C> {
    const beganMs = this.#nowMs()
    const after = await changeRestoreRecord(this.#table, before, change)
    if (after === undefined) throw takenOver()
    this.#note(after, beganMs)
    return after
  }

  #noteFormat(format: number): void {
    if (format <= this.#seen.format) return // Formats only rise.
    this.#formatBefore = this.format
    this.#seen = { format, atMs: this.#nowMs() }
  }

  /** @param asOfMs not after the row had this record. */
  #note(record: RestoreRecord, asOfMs: number): void {
    if (record.turn < this.#record.turn) return // Of two overlapping reads, the earlier one may end last.
    this.#asOfMs = record.turn > this.#record.turn ? asOfMs : Math.max(this.#asOfMs, asOfMs)
    this.#record = record
  }

  /** True when `requireRestored` has nothing to wait for or to refuse. */
  get isRestored(): boolean {
    return this.#nowMs() - this.#asOfMs <= this.#copyMsMax && this.#obstacleIn(this.run) === undefined
  }

  /**
   * Call after rows of users were read, or before they are changed.
   * @returns undefined when the copy is young enough and shows no obstacle. Otherwise a promise, which rejects with KvError
   *   `storage_unavailable` while a restore is incomplete, when this server must not serve any more, or when that cannot be
   *   known.
   */
  requireRestored(): undefined | Promise<void> {
    const ageMs = this.#nowMs() - this.#asOfMs
    if (ageMs > this.#copyMsMax)
      return this.refresh().then(({ run }) => {
        const obstacle = this.#obstacleIn(run)
        if (obstacle !== undefined) throw obstacle
      })
    if (ageMs > POLL_MS) void this.#pollSoon()
    const obstacle = this.#obstacleIn(this.run)
    return obstacle && Promise.reject(obstacle)
  }

  #obstacleIn(run: RestoreRun | undefined): KvError | undefined {
    if (this.fault !== undefined) return new KvError('storage_unavailable', this.fault, {})
    return run && incomplete()
  }

  /** @throws KvError `storage_unavailable` when this server must not serve the table any more. */
  requireServing(): void {
    if (this.fault !== undefined) throw new KvError('storage_unavailable', this.fault, {})
  }

  /** Call before a restore changes rows. @throws KvError `storage_unavailable` when another server has taken over. */
  async requireHeld(holder: string): Promise<void> {
    this.requireServing()
    if (this.#nowMs() - this.#asOfMs > this.#copyMsMax) await this.refresh()
    if (this.run?.holder !== holder) throw takenOver()
  }

  /** The incomplete restore, as far as known. Reads an old copy again, for the next call. */
  peek(): RestoreRun | undefined {
    if (this.#nowMs() - this.#asOfMs > POLL_MS) void this.#pollSoon()
    return this.run
  }

  /** Never rejects: a caller whose copy is too old reads the row itself. */
  #pollSoon(): Promise<void> {
    this.#polling ??= this.refresh().then(
      () => {
        this.#polling = undefined
      },
      () => {
        this.#polling = undefined
      },
    )
    return this.#polling
  }
}

function takenOver(): KvError {
  return new KvError('storage_unavailable', 'another server has continued the restore', {})
}

function incomplete(): KvError {
  const detail =
    'a restore is not complete: it is running, or was interrupted and must be continued with the same backup'
  return new KvError('storage_unavailable', detail, {})
}
