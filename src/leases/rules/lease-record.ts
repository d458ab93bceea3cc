import { physicalMs, type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { StoredLease } from './lease.js'

/**
 * A lease as it is stored. Where several servers grant leases, every change is one conditional write on the whole record.
 *
 * - `free`, only with several servers: the lease has had no holder since the record was made. A grant replaces such a record,
 *   never an absent one: a late copy of a grant would meet an absent record again after the lease has ended, and would bring the
 *   lease back.
 * - `held`: from the grant until its term ends, unless it is renewed.
 * - `ending`: the fence is not in force any more, and attached keys are being deleted.
 */
export interface LeaseRecord extends StoredLease {
  readonly state: 'free' | 'held' | 'ending'
  /** End of the term in the oracle's timestamps; 0: one process knows the end. For a free lease: when its record was made. */
  readonly endsTs: Timestamp
  /** The grant may have attached keys, which must be looked for when it ends. A single process keeps this in memory only. */
  readonly hasKeys: boolean
}

export function heldAt(lease: LeaseRecord | undefined, ts: Timestamp): LeaseRecord | undefined {
  return lease?.state === 'held' && ts < lease.endsTs ? lease : undefined
}

export function hasKeysToEnd(lease: LeaseRecord | undefined): boolean {
  return lease?.state === 'ending' || (lease?.state === 'held' && lease.hasKeys)
}

/**
 * @param fence taken from the oracle after the record that the grant replaces was read, and not before that one's `endsTs`. So
 *   it is above the commit_ts of every transaction that was checked against an earlier record.
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

/** Rounds to whole milliseconds: the logical part of a timestamp is no time. */
function endOf(nowTs: Timestamp, ttlMs: number): Timestamp {
  return timestampFromMs(physicalMs(nowTs) + ttlMs)
}
