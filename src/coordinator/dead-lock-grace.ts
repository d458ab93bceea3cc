/**
 * A lock that expired this long before it was first seen may have been placed already expired, because clients choose
 * their timestamps.
 */
export const LONG_OVER_MS = 2000

/**
 * Milliseconds that a client has to finish by itself, from the end of its lock's TTL. They count from the first sight
 * of a lock that is long over.
 */
export function graceMs(isLongOver: boolean): number {
  return isLongOver ? 3000 : 1000
}
