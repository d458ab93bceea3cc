import { KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { belowSafePoint } from '../../percolator/errors.js'
import type { Timestamp } from '../../timestamp.js'
import type { AskedAck } from './asked-effects.js'
import type { Ack, StoredNotification } from './cell.js'

export interface AckRequest extends Pick<AskedAck, 'effect' | 'seen'> {
  readonly startTs: Timestamp
  /** The run commits at this timestamp, which is above every timestamp handed out. */
  readonly commitTs: Timestamp
}

export interface AckContext {
  readonly notification: StoredNotification | undefined
  readonly ack: Ack | undefined
  readonly safePoint: Timestamp
  /** The highest fence under which this process has handed the cell out; 0: none. */
  readonly newestFence: Timestamp
  /** The observer's id: changes at or below it were not marked. */
  readonly observedSince: Timestamp
  /**
   * Timestamp of the newest Put, Delete or expiry at or below `seen`; 0: none. Called only when the notification is newer than
   * `seen`.
   */
  readonly newestSeen: () => Timestamp
}

export type AckOutcome =
  /** The transaction has committed already. */
  | { readonly kind: 'repeat'; readonly commitTs: Timestamp }
  /** `isClean`: the notification is removed. Otherwise it stays for the changes that the run has not seen. */
  | { readonly kind: 'acknowledged'; readonly isClean: boolean; readonly ack: Ack }
  | { readonly kind: 'refused'; readonly error: KvError }

/**
 * Decides whether a run may commit. Of two runs on one change at most one may, and runs on one cell are in a total order: each
 * has a change of its own that no earlier run covered, and has begun after the earlier one committed.
 *
 * An acknowledgement has two timestamps for that reason. `ackTs` says what was covered; `commitTs` says which run came first.
 * With `ackTs` alone, a run that began before the commit of another could commit after it.
 * @returns Errors: `ts_below_safe_point`; `write_conflict` (`acknowledged`, `superseded`).
 * @see The paper, section 2.4: the conflict of two runs on the acknowledgement column.
 */
export function acknowledge({ effect, seen, startTs, commitTs }: AckRequest, context: AckContext): AckOutcome {
  const { notification, ack, safePoint, newestFence } = context
  const claimed = Math.min(effect.fence, seen)
  if (ack?.startTs === startTs) return { kind: 'repeat', commitTs: ack.commitTs }
  const refused = (detail: string, reason: 'acknowledged' | 'superseded', retryable: boolean): AckOutcome => {
    const { observer, key } = effect
    const conflict = { conflictStartTs: ack?.ackTs ?? 0, conflictCommitTs: ack?.commitTs ?? 0 }
    const fields = { key, startTs, ...conflict, primary: key, reason, observer, retryable }
    const text = `the notification of ${printKey(key)} for the observer ${observer} ${detail}`
    return { kind: 'refused', error: new KvError('write_conflict', text, fields) }
  }
  if (claimed < safePoint) return { kind: 'refused', error: belowSafePoint(claimed, safePoint) }
  if (notification === undefined) return refused('is acknowledged already', 'acknowledged', false)
  if (ack !== undefined && ack.commitTs > claimed)
    return refused(`was acknowledged at ${ack.commitTs}, after the claim`, 'acknowledged', true)
  if (newestFence > effect.fence) return refused('was handed out again', 'superseded', false)
  const isClean = notification.changeTs <= seen
  if (!isClean && !isUncovered(context.newestSeen(), context))
    return refused('was made after the claim', 'acknowledged', true)
  return { kind: 'acknowledged', isClean, ack: { ackTs: seen, commitTs, startTs } }
}

/**
 * Whether an older change than the entry's is known to be marked and uncovered. When in doubt false: the next claim sees the
 * notification.
 */
function isUncovered(changeTs: Timestamp, { ack, safePoint, observedSince }: AckContext): boolean {
  // Acknowledgements at or below the safe point are collected.
  if (changeTs <= Math.max(ack?.ackTs ?? safePoint, observedSince)) return false
  // A run's own write of the key marks nothing.
  return changeTs !== ack?.commitTs
}
