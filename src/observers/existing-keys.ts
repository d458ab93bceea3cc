import { afterKey, type KeyRange } from '../bytes/key-range.js'
import type { LockResolver } from '../coordinator/lock-resolver.js'
import { SnapshotReader } from '../coordinator/snapshot-reader.js'
import { LOCK_WAIT_MS_DEFAULT } from '../limits.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'

interface Asked {
  readonly range: KeyRange
  readonly after: Uint8Array | undefined
  readonly limit: number
  readonly signal?: AbortSignal
}

/** Keys of a range that have a value now, ascending. */
export async function existingKeys(
  store: Store,
  resolver: LockResolver,
  { range, after, limit, signal }: Asked,
): Promise<{ readonly keys: readonly Uint8Array[]; readonly ts: Timestamp }> {
  const ts = await store.readTs()
  const reader = new SnapshotReader(store, resolver, ts, { lockWaitMs: LOCK_WAIT_MS_DEFAULT, signal })
  const start = after === undefined ? range.start : afterKey(after)
  const { pairs } = await reader.scan({ start, end: range.end, limit, keyOnly: true })
  return { keys: pairs.map(({ key }) => key), ts }
}
