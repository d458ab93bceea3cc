import type { WireBytes } from './wire-bytes.js'

/** Answers of the HTTP API, with the fields that the console uses. */

export interface LockInfo {
  readonly key: WireBytes
  readonly primary: WireBytes
  readonly start_ts: number
  readonly ttl: number
  readonly type: 'put' | 'delete' | 'lock' | 'pessimistic'
  readonly for_update_ts: number
  readonly min_commit_ts: number
  readonly use_async_commit: boolean
}

export interface HoldingLock extends LockInfo {
  readonly expires_in_ms: number
}

export interface WriteInfo {
  readonly type: 'put' | 'delete' | 'lock' | 'rollback'
  readonly start_ts: number
  readonly commit_ts: number
  readonly short_value?: WireBytes
  readonly expire_ts?: number
  /** Fence of the lease whose end deletes the key. */
  readonly lease_fence?: number
}

export interface History {
  readonly lock: LockInfo | null
  readonly writes: readonly WriteInfo[]
  readonly values: readonly { readonly start_ts: number; readonly value: WireBytes }[]
}

export interface Version {
  readonly value: WireBytes
  readonly commitTs: number
  /** The key is absent from this timestamp on. */
  readonly expireTs: number | undefined
  /** Fence of the lease whose end deletes the key. */
  readonly leaseFence: number | undefined
}

export interface Pair {
  readonly key: WireBytes
  readonly value?: WireBytes
  readonly commit_ts: number
  readonly expire_ts?: number
  readonly lease_fence?: number
}

export interface Leases {
  readonly leases: readonly { readonly name: string; readonly fence: number }[]
}

export interface HeldLease {
  readonly name: string
  readonly holder: string
  readonly fence: number
  readonly ttl_ms: number
  readonly expires_at: string
}

export interface LeasePage {
  readonly leases: readonly HeldLease[]
  readonly cursor?: string
}

export interface AttachedKeys {
  readonly keys: readonly WireBytes[]
  readonly more_keys: boolean
}

/** `GET /v1/admin/load` */
export interface Load {
  readonly slow_ms: number
  readonly slow: readonly SlowRequest[]
  readonly hot_keys: readonly {
    readonly key: WireBytes
    readonly reads_per_minute: number
    readonly writes_per_minute: number
  }[]
}

export interface SlowRequest {
  readonly request_id?: string
  readonly method: string
  readonly route: string
  readonly status: number
  readonly started_at: string
  readonly total_ms: number
  readonly receive_ms: number
  readonly queue_ms: number
  readonly latch_ms: number
  readonly lock_ms: number
  readonly read_ms: number
  readonly write_ms: number
  readonly other_ms: number
  readonly keys: readonly WireBytes[]
  readonly start?: WireBytes
  readonly end?: WireBytes
  readonly is_cut: boolean
}

export interface Wait {
  readonly txn: number
  readonly wait_for_txn: number
  readonly key: WireBytes
}

export interface TxnStatus {
  readonly status: 'locked' | 'committed' | 'rolled_back'
  readonly lock_ttl: number
  readonly commit_ts: number
  readonly action: string
}

export interface Access {
  readonly may_write: boolean
  readonly prefixes?: readonly WireBytes[]
}

export interface Status {
  readonly version: string
  readonly store: string
  readonly durability: string
  readonly uptime_ms: number
  readonly writable: boolean
  readonly safe_point: number
  readonly access: Access
  readonly observers: { readonly pending: number; readonly parked: number; readonly lag_ms: number }
  readonly feed: { readonly lag_ms: number; readonly held_back_by: readonly HoldingLock[] }
  readonly counts: { readonly locks?: number; readonly open_transactions: number }
  readonly overload: { readonly requests: number; readonly loop_delay_ms: number; readonly queued_bytes?: number }
  readonly gc: { readonly life_time_ms: number }
}
