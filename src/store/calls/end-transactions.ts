import { groupBy } from '../../bytes/group-by.js'
import { locksIn, txnText } from '../../coordinator/found-locks.js'
import { LockResolver } from '../../coordinator/lock-resolver.js'
import { isKvError } from '../../errors/kv-error.js'
import { WRITE_AHEAD_MS_MAX } from '../../limits.js'
import { isFarAhead } from '../../percolator/actions/remove-versions.js'
import type { PercolatorApi } from '../../percolator/api.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../../timestamp.js'

export interface BoundedRange {
  readonly start: Uint8Array
  readonly end: Uint8Array
}

/** Includes locks on reserved keys. */
const ALL = { maxTs: TIMESTAMP_MAX, withReserved: true } as const

type Api = Omit<PercolatorApi, 'deleteRange'>

/**
 * Ends every transaction that has a lock in the range, or whose primary or secondaries are there, whatever its TTL, on all of its
 * keys: as committed if it is so already, or else rolled back. After that, the end of a transaction with locks depends on records
 * in the range only if it has locked there in the meantime.
 *
 * Leaves out locks so far ahead of the clock that no client may write there.
 */
export async function endTransactionsIn(store: Api, { start, end }: BoundedRange): Promise<void> {
  const isIn = (key: Uint8Array): boolean => Buffer.compare(key, start) >= 0 && Buffer.compare(key, end) < 0
  const farTs = (await store.now()) + timestampFromMs(WRITE_AHEAD_MS_MAX)
  const resolver = new LockResolver(store)
  /** commit_ts of the ended transactions, by `txnText`; 0: rolled back. */
  const ended = new Map<string, Timestamp>()
  for await (const locks of locksIn(store, ALL))
    for (const lock of locks) {
      const { key, primary, secondaries, startTs } = lock
      if (ended.has(txnText(lock)) || isFarAhead(startTs, farTs)) continue
      if (isIn(key) || isIn(primary) || secondaries.some(isIn)) ended.set(txnText(lock), await resolver.endNow(lock))
    }
  if (ended.size === 0) return
  for await (const locks of locksIn(store, ALL))
    for (const [txn, own] of groupBy(locks, txnText)) {
      const [first] = own
      const commitTs = ended.get(txn)
      if (first === undefined || commitTs === undefined) continue
      await finish(
        store,
        first.startTs,
        commitTs,
        own.map(({ key }) => key),
      )
    }
}

async function finish(store: Api, startTs: Timestamp, commitTs: Timestamp, keys: readonly Uint8Array[]): Promise<void> {
  try {
    await store.resolveLock({ txns: [{ startTs, commitTs }], keys, isDecided: true })
  } catch (error) {
    if (!isKvError(error, 'already_committed') && !isKvError(error, 'txn_lock_not_found')) throw error
    // A client has ended one of the locks in another way than its primary says.
    const [key, ...others] = keys
    if (others.length === 0 || key === undefined) return
    for (const each of keys) await finish(store, startTs, commitTs, [each])
  }
}
