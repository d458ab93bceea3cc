import { LockResolver } from '../client/lock-resolver.js'
import { TIMESTAMP_MAX, type Timestamp } from '../percolator/timestamp.js'
import type { Store } from '../store/store.js'

const LOCKS_AT_A_TIME = 1000

export interface Collected {
  /** The safe point in force afterwards. */
  readonly safePoint: Timestamp
  readonly versionsRemoved: number
}

/**
 * Raises the safe point, so that no transaction from below it locks anything any more; ends those that still hold locks,
 * living ones too (as TiDB's GC worker does); then removes what no reader from there on can see. A safe point below the
 * present one changes nothing.
 * @param safePoint not above the store's clock.
 */
export async function collectGarbage(store: Store, safePoint: Timestamp): Promise<Collected> {
  const inForce = await store.raiseSafePoint(safePoint)
  if (safePoint < inForce) return { safePoint: inForce, versionsRemoved: 0 }
  const resolver = new LockResolver(store)
  for (;;) {
    const { locks } = await store.scanLock({ maxTs: safePoint - 1, limit: LOCKS_AT_A_TIME })
    if (locks.length === 0) break
    await resolver.resolve(locks, TIMESTAMP_MAX)
  }
  const versionsRemoved = await store.collect(safePoint)
  return { safePoint: store.safePoint, versionsRemoved }
}
