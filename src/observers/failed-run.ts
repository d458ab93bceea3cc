import { cutText } from '../bytes/cut-text.js'
import { backoffMs } from '../event-loop/backoff.js'
import { RUN_ERROR_BYTES_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import type { Cell, CellChange, Failure } from './rules/cell.js'
import type { ObserverOptions } from './rules/observers-api.js'

export interface FailedRun {
  readonly error: string
  /** The delay chosen by the worker; it replaces the back-off. */
  readonly retryAfterMs?: number | undefined
}

export interface FailureContext {
  readonly options: ObserverOptions
  /** By the clock of the store's `steadyMs`. */
  readonly nowMs: number
  readonly ts: Timestamp
  readonly random: number
}

/**
 * Decides the state of a cell after a run has failed, or its lease has ended.
 * @returns undefined for a clean cell: another run has committed meanwhile.
 */
export function failedRun(cell: Cell, run: FailedRun, context: FailureContext): FailedCell | undefined {
  const { key, notification, failure: before } = cell
  if (notification === undefined) return undefined
  const { options, nowMs, ts, random } = context
  const attempts = (before?.attempts ?? 0) + 1
  const isParked = options.maxAttempts > 0 && attempts >= options.maxAttempts
  const delayMs = run.retryAfterMs ?? backoffMs(attempts, options, random)
  const failure: Failure = {
    attempts,
    notBeforeMs: isParked ? 0 : Math.round(nowMs + delayMs),
    error: cutText(run.error, RUN_ERROR_BYTES_MAX),
    parkedTs: isParked ? ts : 0,
    ...notification,
  }
  return { failure, change: isParked ? { key, notification: null, failure } : { key, failure } }
}

export interface FailedCell {
  readonly failure: Failure
  readonly change: CellChange
}

/** @returns the change that makes a parked cell ready; undefined for a cell that is not parked. */
export function retried(cell: Cell): CellChange | undefined {
  if (!isParked(cell)) return undefined
  const { key, failure } = cell
  const { changeTs, kind, depth } = failure
  return { key, notification: { changeTs, kind, depth }, failure: null }
}

/**
 * Decides the skip of a parked cell: a run that does nothing. It writes an acknowledgement; without it, a run that was claimed
 * before could cover the skipped change.
 * @param ts above every timestamp at which a run has read. @returns undefined for a cell that is not parked.
 */
export function skipped(cell: Cell, ts: Timestamp): CellChange | undefined {
  if (!isParked(cell)) return undefined
  return { key: cell.key, ack: { ackTs: ts, commitTs: ts, startTs: 0 }, failure: null }
}

/** A parked cell has no notification. One that was marked again has a notification, and is ready for one more try. */
export function isParked<C extends Pick<Cell, 'notification' | 'failure'>>(
  cell: C,
): cell is C & { readonly failure: Failure } {
  const { notification, failure } = cell
  return notification === undefined && failure !== undefined && failure.parkedTs > 0
}
