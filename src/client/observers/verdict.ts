import { isAckRefused } from '../../coordinator/ack-refused.js'
import { Undetermined } from '../../coordinator/undetermined.js'
import { isRetryable } from '../../errors/kv-error.js'

/**
 * What to do with the claims of a failed attempt.
 * - `again`: a race was lost.
 * - `wait`: the database is away, or the outcome is unknown. Running again is safe in both cases: of two attempts that
 *   acknowledge one claim at most one commits.
 * - `release`: another worker has run since the claim, and there are newer changes.
 * - `drop`: nothing is left to run, or the cell was handed out again.
 * - `fail`: counts as a failed attempt.
 */
export type Verdict = 'again' | 'wait' | 'release' | 'drop' | 'fail'

export function verdictOf(error: unknown, observer: string, isAway: (error: unknown) => boolean): Verdict {
  if (isAckRefused(error) && error.fields.observer === observer)
    return error.fields.retryable === true ? 'release' : 'drop'
  if (error instanceof Undetermined || isAway(error)) return 'wait'
  return isRetryable(error) ? 'again' : 'fail'
}
