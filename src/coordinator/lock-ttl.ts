/** TTLs in milliseconds; client-go `transaction/2pc.go` has the same figures. */
const TTL_MIN_MS = 3000
const TTL_MAX_MS = 20_000
const BYTES_BEFORE_GROWTH = 32 * 1024
const TTL_MS_PER_ROOT_MIB = 6000
/** Of a pessimistic lock, and of one that heartbeats keep alive. */
export const MANAGED_LOCK_TTL_MS = 20_000

/**
 * How long the locks of a commit shall live if nobody is heard of their coordinator again: longer for large
 * transactions, and counted from now, though a TTL counts from `start_ts`.
 * @param bytes of keys and values. @param ageMs since `start_ts`.
 */
export function lockTtlMs(bytes: number, ageMs: number): number {
  const grown = bytes < BYTES_BEFORE_GROWTH ? 0 : TTL_MS_PER_ROOT_MIB * Math.sqrt(bytes / 2 ** 20)
  return Math.ceil(Math.min(TTL_MAX_MS, Math.max(TTL_MIN_MS, grown)) + ageMs)
}
