import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { StoredNotification } from '../rules/cell.js'
import { type HintedCell, isStill, uncovered } from '../rules/hinted-cell.js'
import type { RegisteredObserver } from '../rules/observer.js'

export type Step =
  /** Nothing now: another worker has claimed it, it is delayed, or a change of it is about to commit. */
  | { readonly kind: 'wait' }
  /** The cell is clean or parked, and its hint can be removed. */
  | { readonly kind: 'forget' }
  /** The lease of its last claim has run out. */
  | { readonly kind: 'failed'; readonly notification: StoredNotification }
  | { readonly kind: 'too deep'; readonly notification: StoredNotification }
  | { readonly kind: 'claim'; readonly notification: StoredNotification; readonly attempt: number }

const WAIT: Step = { kind: 'wait' }

/**
 * @param cell read at `ts`, after its hint.
 * @param fence of the claim, at or below `ts`.
 */
export function nextStep(cell: HintedCell, observer: RegisteredObserver, fence: Timestamp, ts: Timestamp): Step {
  const { claim, failure, ack } = cell
  const nowMs = physicalMs(ts)
  const isOver = claim !== undefined && claim.fence !== 0 && claim.fence < (ack?.commitTs ?? 0)
  if (claim !== undefined && claim.untilMs > nowMs && !isOver) return WAIT
  // Another run is acknowledging it, or has done so meanwhile.
  if (cell.ackLock !== undefined || (ack !== undefined && ack.commitTs > ts)) return WAIT
  const newest = uncovered(cell, observer, TIMESTAMP_MAX, ts)
  if (newest === undefined || isParkedAt(cell, newest)) return isStill(cell) ? { kind: 'forget' } : WAIT
  const notification = uncovered(cell, observer, ts)
  // A client has committed ahead of the clock.
  if (notification === undefined || notification.changeTs > fence) return WAIT
  if (claim !== undefined && claim.fence !== 0 && !isOver) return { kind: 'failed', notification }
  if (failure !== undefined && failure.parkedTs === 0 && failure.notBeforeMs > nowMs) return WAIT
  if (observer.maxDepth > 0 && notification.depth > observer.maxDepth) return { kind: 'too deep', notification }
  return { kind: 'claim', notification, attempt: (failure?.attempts ?? 0) + 1 }
}

export function isParkedCell(cell: HintedCell, observer: RegisteredObserver, now: Timestamp): boolean {
  const newest = uncovered(cell, observer, TIMESTAMP_MAX, now)
  return newest !== undefined && isParkedAt(cell, newest)
}

function isParkedAt({ failure }: HintedCell, { changeTs }: StoredNotification): boolean {
  return failure !== undefined && failure.parkedTs > 0 && changeTs <= failure.changeTs
}
