import { KvError } from '../../errors/kv-error.js'
import type { PositionEffect } from '../../percolator/commit-effects.js'
import type { Timestamp } from '../../timestamp.js'
import type { Consumer } from './consumer.js'

export interface PositionRequest {
  readonly effect: PositionEffect
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  readonly primary: Uint8Array
}

export type PositionOutcome =
  /** The transaction has committed already. */
  | { readonly kind: 'repeat'; readonly commitTs: Timestamp }
  | { readonly kind: 'advanced'; readonly consumer: Consumer }
  | { readonly kind: 'refused'; readonly error: KvError<'write_conflict'> }

/**
 * Decides whether a transaction that has applied the changes in `(from, ts]` may commit. Of two instances that apply the same
 * changes at most one may.
 *
 * `from` is valid from `ackedTs` up to `position`: the range has no change in between, so a client that began at one of them has
 * applied the same changes as one that began at another. After a commit `ackedTs` is at or above each change that it applied, so
 * another client that has applied one of them began below it, and is refused.
 * @returns Errors: `write_conflict` (`acknowledged`). The same transaction would be refused again, so it is not retryable.
 */
export function advancePosition(
  { effect, startTs, commitTs, primary }: PositionRequest,
  consumer: Consumer,
): PositionOutcome {
  if (consumer.startTs === startTs) return { kind: 'repeat', commitTs: consumer.commitTs }
  const { from, ts } = effect
  const { name, position, ackedTs } = consumer
  if (from < ackedTs || from > position) {
    const conflict = { conflictStartTs: consumer.startTs, conflictCommitTs: consumer.commitTs }
    const fields = { key: primary, startTs, ...conflict, primary, reason: 'acknowledged' as const }
    const detail = `the consumer ${name} is at ${position}, and the transaction goes on from ${from}`
    const error = new KvError('write_conflict', detail, { ...fields, consumer: name, position, retryable: false })
    return { kind: 'refused', error }
  }
  return {
    kind: 'advanced',
    consumer: { ...consumer, position: Math.max(position, ts), ackedTs: ts, startTs, commitTs },
  }
}
