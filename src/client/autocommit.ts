import type { KeyRange } from '../bytes/key-range.js'
import type { Version } from '../percolator/api.js'
import type { LeaseRider } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'
import type { Touch, Write } from './write.js'

export interface CallOptions {
  /** Longest wait for other transactions' locks. */
  readonly lockWaitMs: number
  readonly signal: AbortSignal | undefined
  /** Of a write the server measures it, because only the server knows whether the write can still be given up. */
  readonly timeoutMs?: number | undefined
}

/** Calls that are one transaction each. */
export interface Autocommit {
  /** @param ts undefined reads the latest version, without asking for a timestamp. */
  get(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined>
  /** Takes effect exactly once. @returns the commit_ts. @throws KvError `precondition_failed` */
  write(write: Write, options: CallOptions): Promise<Timestamp>
  /** Takes effect exactly once. @returns the commit_ts; undefined when the key is absent. */
  touch(touch: Touch, options: CallOptions): Promise<Timestamp | undefined>
  /** A transaction that reads and writes nothing. @throws KvError `precondition_failed` when one of them is not held. */
  requireLeases(leases: readonly LeaseRider[], options: CallOptions): Promise<void>
  /** @param ts default: now or, while a transaction that lives holds locks in the range, just below them. */
  count(range: KeyRange, ts: Timestamp | undefined, options: CallOptions): Promise<Counted>
}

export interface Counted {
  readonly count: number
  /** The snapshot that was counted. */
  readonly ts: Timestamp
}
