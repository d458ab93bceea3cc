import { KvError } from '../../errors/kv-error.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type { Timestamp } from '../../timestamp.js'

/** A durable position in the changes of a range. */
export interface Consumer {
  /** Timestamp of its creation, so it is never used again. */
  readonly id: Timestamp
  readonly name: string
  readonly range: GivenRange
  /** Longest time for which the position holds collection back. */
  readonly holdMs: number
  /** Its changes begin above this timestamp. */
  readonly position: Timestamp
  /**
   * The position as a client has set it last. `position` may be above it: the server moves it on where the range has no change in
   * between.
   */
  readonly ackedTs: Timestamp
  /** The last transaction that acknowledged; 0: none. */
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
}

export function noSuchConsumer(name: string): KvError<'not_found'> {
  return new KvError('not_found', `there is no consumer ${name}`, {})
}
