import { KvError } from '../../../errors/kv-error.js'
import { backgroundTimer } from '../../../event-loop/background-timer.js'
import type { Timestamp } from '../../../timestamp.js'
import type { Table } from '../layout/table.js'
import {
  changeRestoreRecord,
  NO_RESTORE,
  type RestoreRecord,
  type RestoreRun,
  readRestoreRecord,
} from './restore-row.js'

/** A server reads the row again this often. */
const POLL_MS = 1000
/** A server serves on a copy of the row up to this old. */
const COPY_MS_MAX = 3000

export interface RestoreWatchOptions {
  /** Milliseconds that pass as time does. */
  readonly nowMs?: (() => number) | undefined
  /** Default `COPY_MS_MAX`. */
  readonly copyMsMax?: number | undefined
}

/**
 * This server's copy of the row that says whether a restore is incomplete.
 *
 * Whoever restores puts a marker there, and touches no row of a user before `quietMs` have passed. So a server whose copy is not
 * older than `copyMsMax` and shows no marker knows that no pair of a restore had been written when it asks: what it has read
 * until then is no half of a restore, and what it writes then on the condition that a row is as it has read it cannot replace a pair.
 * Clocks are never compared; they only have to run as fast as each other.
 */
export class RestoreWatch {
  readonly #table: Table
  readonly #nowMs: () => number
  readonly #copyMsMax: number
  #record: RestoreRecord = NO_RESTORE
  /** When the read of the copy began, or of a later one that has shown the same. */
  #asOfMs = Number.NEGATIVE_INFINITY
  #polling: Promise<void> | undefined
  #stopTimer = (): void => {}
  #isClosed = false

  /** @param table without a guard. */
  constructor(table: Table, { nowMs = () => performance.now(), copyMsMax = COPY_MS_MAX }: RestoreWatchOptions = {}) {
    this.#table = table
    this.#nowMs = nowMs
    this.#copyMsMax = copyMsMax
  }

  /** After so many milliseconds every server has either seen a marker, or refuses until it has looked. */
  get quietMs(): number {
    return this.#copyMsMax * (4 / 3)
  }
  get run(): RestoreRun | undefined {
    return this.#record.run
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

  #pollLater(): void {
    if (this.#isClosed) return
    this.#stopTimer = backgroundTimer(POLL_MS, () => void this.#pollSoon().then(() => this.#pollLater()))
  }

  /** @returns what a read of the row shows that begins now. @throws KvError `storage_unavailable`; CorruptRecord */
  async refresh(): Promise<RestoreRecord> {
    const beganMs = this.#nowMs()
    const record = await readRestoreRecord(this.#table)
    this.#note(record, beganMs)
    return record
  }

  /**
   * Changes the row for a restore.
   * @throws KvError `storage_unavailable` when another server has changed it, or it may be changed or not.
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

  /** @param asOfMs not after the row has held it. */
  #note(record: RestoreRecord, asOfMs: number): void {
    if (record.turn < this.#record.turn) return // Of two reads that overlap the earlier one may end last.
    this.#asOfMs = record.turn > this.#record.turn ? asOfMs : Math.max(this.#asOfMs, asOfMs)
    this.#record = record
  }

  /**
   * Must be called after rows of users were read, or before they are changed.
   * @returns undefined where that is known at once.
   * Rejects with KvError `storage_unavailable` while a restore is incomplete, or when that cannot be known.
   */
  requireRestored(): undefined | Promise<void> {
    const ageMs = this.#nowMs() - this.#asOfMs
    if (ageMs > this.#copyMsMax)
      return this.refresh().then(({ run }) => {
        if (run !== undefined) throw incomplete()
      })
    if (ageMs > POLL_MS) void this.#pollSoon()
    return this.run === undefined ? undefined : Promise.reject(incomplete())
  }

  /** Must be called before rows are changed by a restore. @throws KvError `storage_unavailable` when another one has taken over. */
  async requireHeld(holder: string): Promise<void> {
    if (this.#nowMs() - this.#asOfMs > this.#copyMsMax) await this.refresh()
    if (this.run?.holder !== holder) throw takenOver()
  }

  /** Whether a restore is incomplete, as far as it is known. A copy that is old is read again, for the next time. */
  peek(): RestoreRun | undefined {
    if (this.#nowMs() - this.#asOfMs > POLL_MS) void this.#pollSoon()
    return this.run
  }

  /** Never rejects: who needs the copy reads the row itself where the copy is too old. */
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
  return new KvError('storage_unavailable', 'another server has gone on with the restore', {})
}

function incomplete(): KvError {
  const detail =
    'a restore is not complete: it is running, or was interrupted and must be continued with the same backup'
  return new KvError('storage_unavailable', detail, {})
}
