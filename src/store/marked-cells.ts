import type { Ack, Cell, CellChange, Failure, StoredNotification } from '../observers/rules/cell.js'
import type { ExpiryChange } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'
import type { Pace } from './pace.js'
import type { SystemWrite } from './system-records.js'

export interface CellPage {
  readonly after: Uint8Array | undefined
  readonly limit: number
}

/**
 * The cells of observers in a store that one process has to itself. A cell belongs to the row of its key: it changes only under
 * the latch of the key, as the paper's columns belong to one row.
 */
export interface MarkedCells {
  readonly isShared: false
  /** Cells as on disk, without latches: `cells[i]` for `keys[i]`. @throws KvError `storage_unavailable` */
  read(id: Timestamp, keys: readonly Uint8Array[]): Promise<Cell[]>
  /** Ascending. Fewer than `limit` only at the end. @throws KvError `storage_unavailable` */
  notifications(
    id: Timestamp,
    page: CellPage,
  ): Promise<{ readonly key: Uint8Array; readonly notification: StoredNotification }[]>
  failures(id: Timestamp, page: CellPage): Promise<{ readonly key: Uint8Array; readonly failure: Failure }[]>
  acks(id: Timestamp, page: CellPage): Promise<{ readonly key: Uint8Array; readonly ack: Ack }[]>

  /**
   * Changes cells outside of transactions, under the latches of their rows, in one atomic batch.
   * @param keys no duplicates.
   * @param decide runs in one turn with the read of the cells. Its `ts` is fresh: above the commit_ts of every change that a
   *   reader could have seen. A notification that it puts keeps the higher changeTs of a present one. May throw.
   * @returns the value of the decision, once it is on disk and the listener knows.
   */
  change<T>(
    id: Timestamp,
    keys: readonly Uint8Array[],
    decide: (cells: readonly Cell[], ts: Timestamp) => CellDecision<T>,
  ): Promise<T>

  /**
   * Marks the cells of all observers whose keys have expired, except covered ones. May be repeated with the same expiries.
   * @param expiries at or below a timestamp at which nothing commits any more.
   * @param extraRecords written in the batch of the last mark.
   * @throws KvError `storage_unavailable`
   */
  markExpired(expiries: readonly ExpiryChange[], extraRecords: readonly SystemWrite[]): Promise<void>

  /** Removes records of observers that are not registered, however many, in steps. @throws KvError `storage_unavailable` */
  sweep(pace?: Pace): Promise<void>
}

export interface CellDecision<T> {
  readonly value: T
  readonly changes: readonly CellChange[]
  readonly extraRecords?: readonly SystemWrite[] | undefined
}

/**
 * Receives every change of a notification once its batch is on disk, while the latch of its row is held. So a holder of the latch
 * may rely on the listener to know what is on disk, except while a failed write is in doubt. Calls must not throw.
 */
export interface CellListener {
  /** Called in the turn that decides about an acknowledgement. */
  handedOut(key: Uint8Array): HandedOut
  marked(key: Uint8Array, notification: StoredNotification): void
  retried(key: Uint8Array, notification: StoredNotification): void
  skipped(key: Uint8Array): void
  /** A mark was too deep, or runs failed too often: the cell has this failure and no notification. */
  parkedNow(key: Uint8Array, failure: Failure): void
  /** A run committed. The failure is gone. @param notification what is still uncovered. */
  acknowledged(key: Uint8Array, notification: StoredNotification | undefined): void
  /** A run was refused, because another one committed first, or the cell was handed out again. */
  conflicted(): void
}

export interface HandedOut {
  /** The highest fence under which this process handed the cell out; 0: none that matters. */
  readonly fence: Timestamp
  readonly hasFailure: boolean
  /**
   * The notification on disk, while the claim under `fence` is in force. No run has committed since, because that would have
   * ended the claim, so an acknowledgement under this fence need not read the cell.
   */
  readonly notification?: StoredNotification | undefined
}
