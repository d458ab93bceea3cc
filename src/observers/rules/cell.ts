import type { Timestamp } from '../../timestamp.js'

/** Reasons why a cell is dirty. Stored as the index in this list. */
export const MARK_KINDS = ['put', 'delete', 'notified', 'expired', 'backfill'] as const
export type MarkKind = (typeof MARK_KINDS)[number]

/**
 * The notification of a cell: one observer and one key. A cell is dirty exactly while its notification exists, because the
 * notification is written in the batch of the commit that makes it dirty.
 */
export interface StoredNotification {
  /** commit_ts of the newest change, or the timestamp of a later notification. */
  readonly changeTs: Timestamp
  readonly kind: MarkKind
  /** 0, or 1 + the highest depth of the notifications that the marking transaction acknowledged. */
  readonly depth: number
}

/** The last committed run of a cell: the paper's acknowledgement column. */
export interface Ack {
  /** The run has seen every change up to here. */
  readonly ackTs: Timestamp
  readonly commitTs: Timestamp
  /**
   * start_ts of the run, by which a repeated commit recognises itself. Differs from `ackTs` when the run has seen its fence
   * only.
   */
  readonly startTs: Timestamp
}

/** The record of a cell's failed runs, until a run commits. */
export interface Failure {
  readonly attempts: number
  /** Not handed out before, by the clock of the store's `steadyMs`. */
  readonly notBeforeMs: number
  readonly error: string
  /** 0 unless parked. A parked cell has no notification until the next mark, which makes it ready for one more try. */
  readonly parkedTs: Timestamp
  /** changeTs of the notification when the run failed, for cells whose notification is gone. */
  readonly changeTs: Timestamp
  readonly kind: MarkKind
  readonly depth: number
}

export interface Cell {
  readonly key: Uint8Array
  readonly notification: StoredNotification | undefined
  readonly ack: Ack | undefined
  readonly failure: Failure | undefined
}

/** A change to one cell. Absent parts stay as they are; null removes. */
export interface CellChange {
  readonly key: Uint8Array
  readonly notification?: StoredNotification | null
  readonly ack?: Ack | null
  readonly failure?: Failure | null
}
