import type { KeyRange } from '../bytes/key-range.js'
import type { Version } from '../percolator/api.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'
import type { Timestamp } from '../timestamp.js'
import type { Touch, Write } from './write.js'

export interface CallOptions {
  /** Longest wait for other transactions' locks. */
  readonly lockWaitMs: number
  readonly signal: AbortSignal | undefined
  /** The server measures the time of a write, because only it knows whether the write can still be given up. */
  readonly timeoutMs?: number | undefined
}

export interface Autocommit {
  /** @param ts undefined reads the latest version, without a timestamp from the server. */
  get(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined>
  /** Takes effect exactly once. @returns the commit_ts. @throws KvError `precondition_failed` */
  write(write: Write, options: CallOptions): Promise<Timestamp>
  /** Takes effect exactly once. @returns the commit_ts; undefined when the key is absent. */
  touch(touch: Touch, options: CallOptions): Promise<Timestamp | undefined>
  /** Runs a transaction that reads and writes nothing. @throws KvError `precondition_failed` when a lease is not held. */
  requireLeases(leases: readonly LeaseGuard[], options: CallOptions): Promise<void>
  /** @param ts default: now or, while living transactions hold locks in the range, just below these locks. */
  count(range: KeyRange, ts: Timestamp | undefined, options: CallOptions): Promise<Counted>
}

export interface Counted {
  readonly count: number
  /** Timestamp of the snapshot that was counted. */
  readonly ts: Timestamp
}
