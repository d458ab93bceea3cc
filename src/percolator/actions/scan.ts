import type { LockInfo } from '../../errors/lock-info.js'

/**
 * Selects the locks that a scan has to report. A locked key counts towards the limit, so a scan that reaches its limit before
 * the first lock succeeds.
 * @param pairs the visible pairs, in scan order, at most `limit`; a locked key may be among them.
 * @param locks the locks that block this read in the range, in scan order.
 * @returns the locks within the first `limit` keys of both together, in scan order.
 */
export function locksWithinLimit(
  pairs: readonly { readonly key: Uint8Array }[],
  locks: readonly LockInfo[],
  limit: number,
  reverse: boolean,
): LockInfo[] {
  const met: LockInfo[] = []
  let keys = 0
  let next = 0
  for (const lock of locks) {
    let order = -1
    for (; next < pairs.length; next++, keys++) {
      order = Buffer.compare((pairs[next] as { key: Uint8Array }).key, lock.key) * (reverse ? -1 : 1)
      if (order >= 0) break
    }
    if (keys >= limit) break
    met.push(lock)
    keys++
    if (next < pairs.length && order === 0) next++ // Pair and lock are of one key, which counts once.
  }
  return met
}
