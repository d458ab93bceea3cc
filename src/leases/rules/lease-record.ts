import { physicalMs, type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { StoredLease } from './lease.js'

/**
 * A lease as it is stored. Where several servers grant leases, every change is one conditional write on the whole record.
 *
 * - `free`, only there: nobody has held it since the record was made. A grant replaces such a record, and not its absence: a late copy of a grant
 *   would meet absence again after the lease has ended, and would bring the lease back.
 * - `held`: from the grant on until its term ends, unless it is renewed.
 * - `ending`: the fence is not in force any more, and keys that were attached to it are being deleted.
 */
export interface LeaseRecord extends StoredLease {
  readonly state: 'free' | 'held' | 'ending'
  /** A timestamp of all servers; 0: one process knows when the term ends. Of a free one: when its record was made. */
  readonly endsTs: Timestamp
  /** Keys may be attached to the grant, so they have to be looked for when it ends. One process knows it by itself. */
  readonly hasKeys: boolean
}

/** The grant in force at a timestamp; undefined: nobody holds the lease then. */
export function heldAt(lease: LeaseRecord | undefined, ts: Timestamp): LeaseRecord | undefined {
  return lease?.state === 'held' && ts < lease.endsTs ? lease : undefined
}

/** Whether keys of a grant that is over have to be deleted before the next one. */
export function hasKeysToEnd(lease: LeaseRecord | undefined): boolean {
  return lease?.state === 'ending' || (lease?.state === 'held' && lease.hasKeys)
}

/**
 * @param fence taken from the oracle after the record that the grant replaces was read, and not before that one's `endsTs`. So it is above
 *   the commit_ts of every transaction that was judged by any earlier record.
 */
export function grant(holder: string, ttlMs: number, fence: Timestamp): LeaseRecord {
  return { state: 'held', holder, fence, ttlMs, endsTs: endOf(fence, ttlMs), hasKeys: false }
}

/** A renewal with the same TTL never shortens the term, whichever of two renewals lands last. */
export function renewal(lease: LeaseRecord, ttlMs: number, nowTs: Timestamp): LeaseRecord {
  const endsTs = endOf(nowTs, ttlMs)
  return { ...lease, ttlMs, endsTs: ttlMs === lease.ttlMs ? Math.max(lease.endsTs, endsTs) : endsTs }
}

export function freeSince(nowTs: Timestamp): LeaseRecord {
  return { state: 'free', holder: '', fence: 0, ttlMs: 0, endsTs: nowTs, hasKeys: false }
}

/** Whole milliseconds: what is logical in a timestamp says nothing of time. */
function endOf(nowTs: Timestamp, ttlMs: number): Timestamp {
  return timestampFromMs(physicalMs(nowTs) + ttlMs)
}
