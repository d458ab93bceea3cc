import { isKvError, KvError } from '../errors/kv-error.js'

const TRIES_MAX = 10

/**
 * Runs a call that takes its own timestamp. A collection may raise the safe point above that timestamp before the call
 * reads. No caller has seen the timestamp by then, so the call runs again with a newer one.
 * @throws KvError `overloaded` when this happens ten times in a row; else the error of `attempt`.
 */
export async function aboveSafePoint<T>(attempt: () => T | Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await attempt()
    } catch (error) {
      requirePassed(error, tries)
    }
  }
}

/**
 * Returns if the call may be tried again at a newer timestamp.
 * @throws KvError `overloaded` after too many tries; `error` itself unless it is `ts_below_safe_point`.
 */
export function requirePassed(error: unknown, tries: number): void {
  if (!isKvError(error, 'ts_below_safe_point')) throw error
  if (tries >= TRIES_MAX)
    throw new KvError('overloaded', 'collections of old versions pass each timestamp before it is used', {})
}
