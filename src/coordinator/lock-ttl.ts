// The same figures as in client-go `transaction/2pc.go`.
const TTL_MIN_MS = 3000
const TTL_MAX_MS = 20_000
const BYTES_BEFORE_GROWTH = 32 * 1024
const TTL_MS_PER_ROOT_MIB = 6000
export const MANAGED_LOCK_TTL_MS = 20_000

/**
 * The TTL of a commit's locks, longer for large transactions. A TTL counts from `start_ts`, so the age of the
 * transaction is added.
 * @param bytes of keys and values.
 * @param ageMs since `start_ts`.
 */
export function lockTtlMs(bytes: number, ageMs: number): number {
  const grown = bytes < BYTES_BEFORE_GROWTH ? 0 : TTL_MS_PER_ROOT_MIB * Math.sqrt(bytes / 2 ** 20)
  return Math.ceil(Math.min(TTL_MAX_MS, Math.max(TTL_MIN_MS, grown)) + ageMs)
}
