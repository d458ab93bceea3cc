import { KvError } from '../../errors/kv-error.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type { Timestamp } from '../../timestamp.js'

export interface Consumer {
  /** Timestamp of its creation, so ids are never reused. */
  readonly id: Timestamp
  readonly name: string
  readonly range: GivenRange
  /** Longest time for which the position holds collection back. */
  readonly holdMs: number
  /** The consumer's next changes are above this timestamp. */
  readonly position: Timestamp
  /**
   * The position that a client has set last. `position` may be above it: the server moves it over times without a change of the
   * range.
   */
  readonly ackedTs: Timestamp
  /**
   * The last transaction that acknowledged; 0: none. Where servers share the store, such a transaction has a row of its own
   * (`PositionRow`); the record has timestamps of the last change here, and of the last reset.
   */
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
}

/** Names of consumers that are positions of webhooks begin so. Tokens with prefixes must not move them. */
export const WEBHOOK_CONSUMERS = 'webhook.'

export function noSuchConsumer(name: string): KvError<'not_found'> {
  return new KvError('not_found', `there is no consumer ${name}`, {})
}
