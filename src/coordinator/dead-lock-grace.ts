/**
 * A TTL that had ended this long before it was first seen to have ended may have been over when the lock was placed, because clients choose
 * their timestamps.
 */
export const LONG_OVER_MS = 2000

/** From the end of a TTL, or from when that was first seen, to the end of the transaction, unless its client is faster. */
export function graceMs(isLongOver: boolean): number {
  return isLongOver ? 3000 : 1000
}
