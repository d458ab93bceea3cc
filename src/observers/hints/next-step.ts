import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { Entry } from '../rules/cell.js'
import { type HintedCell, isStill, uncovered } from '../rules/hinted-cell.js'
import type { RegisteredObserver } from '../rules/observer.js'

/** What to do with a hinted cell. */
export type Step =
  /** Nothing now: another worker has it, it is delayed, or a change of it is about to commit. */
  | { readonly kind: 'wait' }
  /** It is clean or parked, and its hint may go. */
  | { readonly kind: 'forget' }
  /** The lease of its last claim has run out. */
  | { readonly kind: 'failed'; readonly entry: Entry }
  | { readonly kind: 'too deep'; readonly entry: Entry }
  | { readonly kind: 'claim'; readonly entry: Entry; readonly attempt: number }

const WAIT: Step = { kind: 'wait' }

/**
 * @param cell looked at, at `ts`, after its hint had been read.
 * @param fence of the claim, at or below `ts`.
 */
export function nextStep(cell: HintedCell, observer: RegisteredObserver, fence: Timestamp, ts: Timestamp): Step {
  const { claim, failure, ack } = cell
  const nowMs = physicalMs(ts)
  const isOver = claim !== undefined && claim.fence !== 0 && claim.fence < (ack?.commitTs ?? 0)
  if (claim !== undefined && claim.untilMs > nowMs && !isOver) return WAIT
  // Somebody is about to acknowledge it, or has done so meanwhile.
  if (cell.ackLock !== undefined || (ack !== undefined && ack.commitTs > ts)) return WAIT
  const newest = uncovered(cell, observer, TIMESTAMP_MAX, ts)
  if (newest === undefined || isParkedAt(cell, newest)) return isStill(cell) ? { kind: 'forget' } : WAIT
  const entry = uncovered(cell, observer, ts)
  // A client has committed ahead of the clock.
  if (entry === undefined || entry.changeTs > fence) return WAIT
  if (claim !== undefined && claim.fence !== 0 && !isOver) return { kind: 'failed', entry }
  if (failure !== undefined && failure.parkedTs === 0 && failure.notBeforeMs > nowMs) return WAIT
  if (observer.maxDepth > 0 && entry.depth > observer.maxDepth) return { kind: 'too deep', entry }
  return { kind: 'claim', entry, attempt: (failure?.attempts ?? 0) + 1 }
}

/** Whether the cell has not changed since it was parked. */
export function isParkedCell(cell: HintedCell, observer: RegisteredObserver, now: Timestamp): boolean {
  const newest = uncovered(cell, observer, TIMESTAMP_MAX, now)
  return newest !== undefined && isParkedAt(cell, newest)
}

function isParkedAt({ failure }: HintedCell, { changeTs }: Entry): boolean {
  return failure !== undefined && failure.parkedTs > 0 && changeTs <= failure.changeTs
}
