import type { KeyRange } from '../bytes/key-range.js'
import type { Version } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import type { Write } from './write.js'

export interface CallOptions {
  /** How long to wait for other transactions' locks. */
  readonly lockWaitMs: number
  readonly signal: AbortSignal | undefined
}

/** Calls that are a transaction of their own. */
export interface Autocommit {
  /** @param ts undefined: the latest version, which needs no timestamp. */
  get(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined>
  /** Takes effect once. @returns the commit_ts. @throws KvError `precondition_failed` */
  write(write: Write, options: CallOptions): Promise<Timestamp>
  /** @param ts undefined: now. */
  count(range: KeyRange, ts: Timestamp | undefined, options: CallOptions): Promise<number>
}
