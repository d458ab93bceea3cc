import type { LazySignal } from '../../event-loop/lazy-signal.js'
import type { Timestamp } from '../../timestamp.js'

export interface LeaseRequest {
  /** 1 to 255 printable characters. The holder of a lease renews it by asking again. */
  readonly holder: string
  readonly ttlMs: number
  /** How long to wait while another holder has the lease. Default 0. */
  readonly waitMs?: number | undefined
  /** Renews this grant only. */
  readonly fence?: Timestamp | undefined
  readonly signal?: LazySignal | undefined
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

export interface LeasesApi {
  /**
   * Grants the lease, renews it, or waits for it.
   * @throws KvError `lease_held` after the wait; `precondition_failed` when `fence` is not in force; `overloaded`,
   *   `storage_unavailable`.
   */
  put(name: string, request: LeaseRequest): Promise<LeaseState>
  /** @throws KvError `not_found` when the lease is free. */
  get(name: string): Promise<LeaseState>
  /** Leases that are held, by name. */
  list(prefix?: string): Promise<readonly LeaseState[]>
  /**
   * Releases a lease; does nothing when it is free.
   * @returns `deleting`: other transactions have locked attached keys. These are deleted before the lease is granted again.
   * @throws KvError `precondition_failed` when another holder has it, or a later grant is in force.
   */
  remove(name: string, holder: string, fence?: Timestamp, signal?: AbortSignal): Promise<{ readonly deleting: boolean }>
}
