import { isAckRefused } from '../../coordinator/ack-refused.js'
import { Undetermined } from '../../coordinator/undetermined.js'
import { isRetryable } from '../../errors/kv-error.js'

/** A key that was there, or locked, at the claim is absent: the next claim tells whether it has expired or was deleted. */
export class EndedSince extends Error {
  override readonly name = 'EndedSince'
}

/**
 * What to do with the claims of a failed attempt.
 * - `again`: a race was lost.
 * - `wait`: the database is away, or the outcome is unknown. Running again is safe in both cases: of two attempts that
 *   acknowledge one claim at most one commits.
 * - `release`: another worker has run since the claim, and there are newer changes; or the key has ended since.
 * - `drop`: nothing is left to run, or the cell was handed out again.
 * - `fail`: counts as a failed attempt.
 */
export type Verdict = 'again' | 'wait' | 'release' | 'drop' | 'fail'

export function verdictOf(error: unknown, observer: string, isAway: (error: unknown) => boolean): Verdict {
  if (error instanceof EndedSince) return 'release'
  if (isAckRefused(error) && error.fields.observer === observer)
    return error.fields.retryable === true ? 'release' : 'drop'
  if (error instanceof Undetermined || isAway(error)) return 'wait'
  return isRetryable(error) ? 'again' : 'fail'
}
