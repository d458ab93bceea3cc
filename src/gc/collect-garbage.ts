import { resolveLocks } from '../client/lock-resolver.js'
import { TIMESTAMP_MAX, type Timestamp } from '../percolator/timestamp.js'
import type { Store } from '../store/store.js'

const LOCKS_AT_A_TIME = 1000

export interface Collected {
  /** The safe point in force afterwards. */
  readonly safePoint: Timestamp
  readonly versionsRemoved: number
}

/**
 * Ends the transactions that started at or before the safe point and still hold locks, living ones too (as TiDB's GC
 * worker does), then raises the safe point and removes what no reader above it can see. One below the present safe
 * point changes nothing.
 * @param safePoint not above the store's clock.
 */
export async function collectGarbage(store: Store, safePoint: Timestamp): Promise<Collected> {
  if (safePoint < store.safePoint) return { safePoint: store.safePoint, versionsRemoved: 0 }
  for (;;) {
    const { locks } = await store.scanLock({ maxTs: safePoint, limit: LOCKS_AT_A_TIME })
    if (locks.length === 0) break
    await resolveLocks(store, locks, TIMESTAMP_MAX)
  }
  const versionsRemoved = await store.collect(safePoint)
  return { safePoint: store.safePoint, versionsRemoved }
}
