/** Waits vary by this fraction either way, so that those that failed together do not return together. */
const JITTER = 0.2
/** More would be no number in the end, which times a wait of 0 is none either. */
const DOUBLINGS_MAX = 40

export interface Backoff {
  readonly backoffMs: number
  readonly backoffMaxMs: number
}

/**
 * The wait after a failed attempt, in milliseconds: it doubles with each, up to a bound.
 * @param attempts that have failed, this one too. @param random from 0 to 1.
 */
export function backoffMs(attempts: number, { backoffMs, backoffMaxMs }: Backoff, random: number): number {
  const doubled = backoffMs * 2 ** Math.min(attempts - 1, DOUBLINGS_MAX)
  return Math.min(backoffMaxMs, doubled) * (1 - JITTER + 2 * JITTER * random)
}
