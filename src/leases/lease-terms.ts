import type { Page, PageRequest } from '../bytes/sorted-map.js'
import type { Awaitable } from '../event-loop/after.js'
import type { LeaseHolders } from '../store/held-leases.js'
import type { SystemName } from '../store/system-records.js'
import type { Timestamp } from '../timestamp.js'
import type { LeaseRecord } from './rules/lease-record.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

export const LEASES = 'lease/' satisfies SystemName

export interface SeenLease {
  /** undefined: the lease has no record. */
  readonly record: LeaseRecord | undefined
  /** The bytes of the record, if they were read from the table. */
  readonly bytes?: Uint8Array | undefined
  /** The grant in force; undefined: the lease is free. */
  readonly held: LeaseState | undefined
  /** A timestamp of about that moment. */
  readonly nowTs: Timestamp
}

export interface OverLeases {
  /** Leases that are free but still have records. */
  readonly over: readonly (readonly [name: string, seen: SeenLease])[]
  /** When to look again; Infinity: not before another grant. */
  readonly nextMs: number
}

/**
 * Keeps the terms of leases: in the memory of the one process that grants them, or in their records, which several servers
 * change.
 */
export interface LeaseTerms extends Pick<LeaseHolders, 'fencesAt'> {
  /** As far as this process knows. */
  has(name: string): boolean
  /** `ending`: leases that are over and whose keys are still to be deleted. */
  counts(): { readonly held: number; readonly ending: number }

  /**
   * Renews a lease for its holder: in memory its term restarts now.
   * @returns undefined when the answer needs a read or a write.
   */
  renew(name: string, request: Pick<LeaseRequest, 'holder' | 'ttlMs' | 'fence'>): LeaseState | undefined

  /** The grant in force. */
  held(name: string): Awaitable<LeaseState | undefined>

  /** Grants in force. @param mayAccess whether the caller may see the name. Default: all. */
  page(request: PageRequest, mayAccess?: (name: string) => boolean): Promise<Page<LeaseState>>

  /**
   * Returns the lease once no write of it is in progress.
   * @param request if it looks like a renewal, the answer may be what this process wrote last; `swap` then finds out whether
   *   that is still current.
   */
  look(name: string, request?: Pick<LeaseRequest, 'holder' | 'fence'>): Awaitable<SeenLease>

  /**
   * Changes a lease if it is still as it was seen. A fence that is given up is out of force from this turn of the event loop on,
   * or once the record is written.
   * @param next undefined removes the record.
   * @returns the lease as it is now; undefined: another request or server has changed it first.
   * @throws KvError `storage_unavailable`: the change may have been made or not.
   */
  swap(name: string, seen: SeenLease, next: LeaseRecord | undefined): Awaitable<SeenLease | undefined>

  /** @throws KvError `overloaded` when the number of leases is at its limit. */
  requireRoom(): Awaitable<void>

  /** Finds the leases that are over. Runs in slices. */
  over(): Promise<OverLeases>
}
