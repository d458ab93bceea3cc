import type { ObserverOptions } from '../../observers/rules/observers-api.js'
import { BOOLEAN, type Kinds, WAIT_MS, wholeUpTo } from '../options.js'

export interface RegistrationOptions {
  /** Also runs the keys that exist already. Default false. */
  readonly backfill?: boolean | undefined
  /** Failed runs after which a key is parked; 0: never. Default 16. */
  readonly maxAttempts?: number | undefined
  /** Wait in milliseconds after the first failed run; it doubles with each further one. Default 200. */
  readonly backoffMs?: number | undefined
  /** Longest wait after a failed run, in milliseconds. Default 60 000. */
  readonly backoffMaxMs?: number | undefined
  /** Longest chain of runs that mark each other's keys. A key beyond it is parked; 0: no limit. Default 64. */
  readonly maxDepth?: number | undefined
}

const WHOLE = wholeUpTo(0, Number.MAX_SAFE_INTEGER)

export const REGISTRATION_KINDS: Kinds<RegistrationOptions> = {
  backfill: BOOLEAN,
  maxAttempts: WHOLE,
  backoffMs: WAIT_MS,
  backoffMaxMs: WAIT_MS,
  maxDepth: WHOLE,
}

export function observerOptionsOf(given: RegistrationOptions): Partial<ObserverOptions> {
  const { maxAttempts, backoffMs, backoffMaxMs, maxDepth } = given
  const options = { maxAttempts, backoffMs, backoffMaxMs, maxDepth }
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
}
