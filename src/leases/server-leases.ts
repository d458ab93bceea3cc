import type { Page, PageRequest } from '../bytes/sorted-map.js'
import type { Limits } from '../limits.js'
import type { AttachedKeys } from './attached-keys.js'
import type { LeaseRequest, LeaseState, LeasesApi } from './rules/leases-api.js'

/** Requests of all leases that wait in one process. */
export const WAITING_MAX = 10_000
/** How long a release waits for locks on the keys, before its answer says so. */
export const KEYS_LOCKED_MS = 3000
/** Requests that are answered in one turn of the event loop, because a lease has changed or their waits are over: some 10 ms of answers. */
export const ANSWERED_TOGETHER_MAX = 100

export interface LeasesOptions {
  /** Deletes those that are attached to a grant which is over. */
  readonly keys: Pick<AttachedKeys, 'fences' | 'end' | 'finish'>
  readonly limits: Pick<Limits, 'leasesMax'>
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

export interface LeasesSummary {
  /** Where several servers grant leases: as this one has seen them last. */
  readonly held: number
  /** Requests that wait for a lease. */
  readonly waiting: number
  /** Leases that are over, whose keys are still to be deleted. */
  readonly ending: number
  // Of this process, since its start:
  readonly grants: number
  readonly renewals: number
  readonly ends: { readonly released: number; readonly ranOut: number }
}

/** The leases that a server grants: alone (`Leases`), or with others on the same table (`SharedLeases`). */
export interface ServerLeases extends LeasesApi {
  /**
   * Renews in this turn of the event loop, if the caller holds the lease and nothing has to be written.
   * @returns undefined when `put` has to be called.
   */
  renewNow(name: string, request: Omit<LeaseRequest, 'waitMs' | 'signal'>): LeaseState | undefined
  /** Those that are held. Other requests run meanwhile. @param reaches whether the caller may see it. Default: all. */
  page(request: PageRequest, reaches?: (name: string) => boolean): Promise<Page<LeaseState>>
  summary(): LeasesSummary
  /** Ends the terms and the waits that are over. Timers call it. */
  look(): void
  /** Ends the waits. Other calls go on. */
  close(): Promise<void>
}
