import type { Page, PageRequest } from '../bytes/sorted-map.js'
import type { Awaitable } from '../event-loop/after.js'
import type { LeaseHolders } from '../store/held-leases.js'
import type { SystemName } from '../store/system-records.js'
import type { Timestamp } from '../timestamp.js'
import type { LeaseRecord } from './rules/lease-record.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

/** What the names of their records begin with. */
export const LEASES = 'lease/' satisfies SystemName

/** A lease as somebody has seen it. */
export interface SeenLease {
  /** undefined: there is none. */
  readonly record: LeaseRecord | undefined
  /** The record, where it was read. */
  readonly bytes?: Uint8Array | undefined
  /** The grant in force; undefined: nobody holds the lease. */
  readonly held: LeaseState | undefined
  /** A timestamp of about that moment. */
  readonly nowTs: Timestamp
}

export interface OverLeases {
  /** Those that nobody holds, and whose records are still there. */
  readonly over: readonly (readonly [name: string, seen: SeenLease])[]
  /** When to look again; Infinity: not before another grant. */
  readonly nextMs: number
}

/** Where the terms of leases live: in the memory of the one process that grants them, or in their records, which several processes change. */
export interface LeaseTerms extends Pick<LeaseHolders, 'fencesAt'> {
  /** As far as this process knows. */
  has(name: string): boolean
  /** Those that are held, and those that are over and whose keys have to be deleted. */
  counts(): { readonly held: number; readonly ending: number }

  /**
   * Whoever holds the lease has asked for it again: its term counts from now on where it is in memory.
   * @returns undefined when anything has to be read or written before the answer.
   */
  renew(name: string, request: Pick<LeaseRequest, 'holder' | 'ttlMs' | 'fence'>): LeaseState | undefined

  /** The grant in force. */
  held(name: string): Awaitable<LeaseState | undefined>

  /** Grants in force. @param reaches whether the caller may see it. Default: all. */
  page(request: PageRequest, reaches?: (name: string) => boolean): Promise<Page<LeaseState>>

  /**
   * The lease, when nothing of it is being written any more.
   * @param request if it looks like a renewal, the answer may be what this process has written last: a swap tells whether that still stands.
   */
  look(name: string, request?: Pick<LeaseRequest, 'holder' | 'fence'>): Awaitable<SeenLease>

  /**
   * Changes a lease, if it still is as it was seen. A fence that is given up is not in force from this turn of the event loop on, or from the
   * moment at which the record is written.
   * @param next undefined removes it.
   * @returns the lease as it stands now; undefined: somebody was faster.
   * @throws KvError `storage_unavailable`: it may be done or not.
   */
  swap(name: string, seen: SeenLease, next: LeaseRecord | undefined): Awaitable<SeenLease | undefined>

  /** @throws KvError `overloaded` when there are as many leases as may be. */
  requireRoom(): Awaitable<void>

  /** Other requests run meanwhile. */
  over(): Promise<OverLeases>
}
