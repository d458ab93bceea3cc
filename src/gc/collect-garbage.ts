import { locksIn } from '../coordinator/found-locks.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import type { LockInfo } from '../errors/lock-info.js'
import { sameKey } from '../percolator/row.js'
import type { Pace } from '../store/pace.js'
import type { Store } from '../store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

const LOCKS_AT_A_TIME = 1000

export interface Collected {
  readonly safePoint: Timestamp
  readonly versionsRemoved: number
}

export interface CollectionOptions {
  readonly pace?: Pace | undefined
  /**
   * Awaited when no lock below the safe point is left, before any version is removed. If it rejects, no version is removed.
   */
  readonly beforehand?: ((safePoint: Timestamp) => Promise<void>) | undefined
  /**
   * Collects whatever else no reader at or above the safe point needs. Not called for a collection that ended early, or found a
   * higher safe point: versions are left then, and so must be what tells that they are dealt with.
   */
  readonly afterwards?: ((safePoint: Timestamp, pace?: Pace) => Promise<void>) | undefined
}

/**
 * Raises the safe point, so that no older transaction can lock a key. Ends the older transactions that still hold
 * locks, even if they are alive, as TiDB's GC worker does. Then removes the records that no reader at or above the safe
 * point can see. Does nothing if `wanted` is below the present one.
 * @param wanted must not be above the store's clock.
 */
export async function collectGarbage(
  store: Store,
  wanted: Timestamp,
  { pace, beforehand, afterwards }: CollectionOptions = {},
): Promise<Collected> {
  // On a shared store the safe point in force may stay below the wanted one, if this server's clock is ahead. Transactions
  // between the two may lock keys while this runs, so nothing above the one in force is collected.
  const safePoint = await store.upkeep.raiseSafePoint(wanted, pace?.signal)
  if (wanted < safePoint) return { safePoint, versionsRemoved: 0 }
  const resolver = new LockResolver(store)
  for (let before: readonly LockInfo[] = [], isLeft = true; isLeft && !pace?.signal?.aborted; ) {
    await resolveLocks(store, resolver, safePoint, TIMESTAMP_MAX)
    const { locks } = await store.scanLock({ maxTs: safePoint - 1, limit: LOCKS_AT_A_TIME, withReserved: true })
    for (const lock of locks) if (before.some((other) => isSame(lock, other))) await rollBack(store, lock)
    before = locks
    isLeft = locks.length > 0
  }
  if (!pace?.signal?.aborted) await beforehand?.(safePoint)
  const versionsRemoved = await store.upkeep.collect(safePoint, pace)
  store.figures.meters.collections.removedVersions += versionsRemoved
  if (!pace?.signal?.aborted) await afterwards?.(safePoint, pace)
  return { safePoint: store.safePoint, versionsRemoved }
}

function isSame(a: LockInfo, b: LockInfo): boolean {
  return a.startTs === b.startTs && sameKey(a.key, b.key) && sameKey(a.primary, b.primary)
}

/**
 * For a lock that was still there after a whole pass: its primary has no record of the transaction. Rolling it back is
 * safe, because a transaction below the safe point cannot commit.
 */
async function rollBack(store: Store, { key, startTs, type, forUpdateTs }: LockInfo): Promise<void> {
  if (type === 'pessimistic') await store.pessimisticRollback({ keys: [key], startTs, forUpdateTs })
  else await store.resolveLock({ txns: [{ startTs, commitTs: 0 }], keys: [key], isDecided: true })
}

/**
 * Resolves all locks of transactions below `ts`.
 * @param currentTs TTLs are compared with it. Transactions that are alive at that time keep their locks.
 */
export async function resolveLocks(
  store: Store,
  resolver: LockResolver,
  ts: Timestamp,
  currentTs: Timestamp,
): Promise<void> {
  for await (const locks of locksBelow(store, ts)) await resolver.resolve(locks, currentTs)
}

export function locksBelow(store: Store, ts: Timestamp): AsyncGenerator<readonly LockInfo[], void> {
  return locksIn(store, { maxTs: ts - 1, withReserved: true })
}
