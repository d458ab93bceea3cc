import { isKvError, KvError } from '../errors/kv-error.js'

/** Timestamps that one call takes for itself while collections pass them before it has read. */
const TRIES_MAX = 10

/**
 * Runs what takes a timestamp of its own. Where a collection passes that timestamp before it is used, nobody has seen it
 * yet, so another one does as well.
 * @throws KvError `overloaded` when collections pass one after another; else what `attempt` throws.
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

/** Returns where the same may be tried again at another timestamp. @throws KvError `overloaded`; `error` if it is another. */
export function requirePassed(error: unknown, tries: number): void {
  if (!isKvError(error, 'ts_below_safe_point')) throw error
  if (tries >= TRIES_MAX)
    throw new KvError('overloaded', 'collections of old versions pass each timestamp before it is used', {})
}
