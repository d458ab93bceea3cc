import type { LockInfo } from '../../errors/lock-info.js'
import type { Timestamp } from '../../timestamp.js'

/** The answer of `GET /v1/status`; docs/operations.md explains the fields. A newer server may add some. */
export interface ServerStatus {
  readonly version: string
  readonly store: string
  readonly capabilities: Readonly<Record<string, boolean | string>>
  readonly durability: 'sync' | '1s' | 'async'
  readonly uptimeMs: number
  readonly writable: boolean
  /** Why the store refuses writes. */
  readonly fault?: string
  readonly safePoint: Timestamp
  readonly restoring?: Readonly<Record<string, unknown>>
  readonly observers: {
    readonly count: number
    readonly pending: number
    readonly parked: number
    readonly lagMs: number
  }
  readonly feed: {
    /** 0 while the feed has no reader. */
    readonly resolvedTs: Timestamp
    readonly lagMs: number
    /** The lowest locks that hold the feed back, of transactions that are over 2 s old. Empty where servers share the store. */
    readonly heldBackBy: readonly (LockInfo & { readonly expiresInMs: number })[]
    readonly live: number
    readonly behind: number
  }
  readonly consumers: { readonly count: number; readonly lost: number; readonly lagMs: number }
  readonly watches: number
  readonly counts: { readonly locks?: number; readonly openTransactions: number }
  readonly overload: Readonly<Record<string, number>>
  readonly gc: {
    readonly lifeTimeMs: number
    readonly intervalMs: number
    readonly isRunning: boolean
    readonly pins: number
    readonly lastRun?: Readonly<Record<string, unknown>>
  }
  /** Rights of the caller. */
  readonly access: {
    readonly mayWrite: boolean
    readonly prefixes?: readonly Uint8Array[]
    readonly expiresAt?: string
  }
}
