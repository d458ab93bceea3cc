import type { LateSignal } from '../../event-loop/late-signal.js'
import type { Timestamp } from '../../timestamp.js'

export interface LeaseRequest {
  /** 1 to 255 printable characters. Who asks again under this name gets the same lease. */
  readonly holder: string
  readonly ttlMs: number
  /** How long to wait for the lease of another. Default 0. */
  readonly waitMs?: number | undefined
  /** Renews this grant only. */
  readonly fence?: Timestamp | undefined
  readonly signal?: LateSignal | undefined
  /** Who asks, where a server tells its callers apart: none of them gets more than half of all leases. */
  readonly caller?: string | undefined
}

export interface LeaseState {
  readonly name: string
  readonly holder: string
  /** Timestamp of the grant. */
  readonly fence: Timestamp
  readonly ttlMs: number
  /** Unix milliseconds by the server's clock. */
  readonly expiresAtMs: number
}

/** Leases, in process or over HTTP. */
export interface LeasesApi {
  /**
   * Grants, renews or waits.
   * @throws KvError `lease_held` after the wait; `precondition_failed` when `fence` is not in force; `overloaded`, `storage_unavailable`.
   */
  put(name: string, request: LeaseRequest): Promise<LeaseState>
  /** @throws KvError `not_found` when it is free. */
  get(name: string): Promise<LeaseState>
  /** Those that are held, by name. */
  list(prefix?: string): Promise<readonly LeaseState[]>
  /**
   * Does nothing when it is free.
   * @returns `deleting`: other transactions have locked keys that are attached to the lease. They are deleted before it is granted again.
   * @throws KvError `precondition_failed` when another holds it, or a later grant is in force.
   */
  remove(name: string, holder: string, fence?: Timestamp, signal?: AbortSignal): Promise<{ readonly deleting: boolean }>
}
