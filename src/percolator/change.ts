import type { Timestamp } from '../timestamp.js'

/** A committed change of one key. */
export interface KeyChange {
  readonly type: 'put' | 'delete'
  readonly key: Uint8Array
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  /** Of a put. Absent where it was not asked for, or is not known yet. */
  readonly value?: Uint8Array | undefined
  /** Of a put that has one. It comes with the value. */
  readonly expireTs?: Timestamp | undefined
}

/** All versions in `[key, end)` at or below `commitTs` were removed. `startTs` is `commitTs`. */
export interface RangeChange {
  readonly type: 'delete_range'
  readonly key: Uint8Array
  readonly end: Uint8Array
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
}

/** A version is absent from `expireTs` on. Nothing is written then: the change stands in no log, and follows from the versions. */
export interface ExpiryChange {
  readonly type: 'expire'
  readonly key: Uint8Array
  /** `expiryTs` of the version: transactions of this commit_ts come before it. */
  readonly commitTs: Timestamp
  /** The same. */
  readonly startTs: Timestamp
  readonly expireTs: Timestamp
  /** The Put that expires. */
  readonly version: { readonly commitTs: Timestamp; readonly startTs: Timestamp }
}

/** A change that the log has a record of. */
export type LoggedChange = KeyChange | RangeChange

export type Change = LoggedChange | ExpiryChange

/** The order of a feed: by commit_ts, start_ts, key; expiries come behind all that was committed at their timestamp. */
export function compareChanges(a: Change, b: Change): number {
  return a.commitTs - b.commitTs || a.startTs - b.startTs || rankOf(a) - rankOf(b) || Buffer.compare(a.key, b.key)
}

/** Whether both are of one transaction. The expiries of a timestamp are one, although nobody has committed it. */
export function isSameTxn(a: Change, b: Change): boolean {
  return a.commitTs === b.commitTs && a.startTs === b.startTs && rankOf(a) === rankOf(b)
}

/** A delete_range may have the timestamp of expiries. */
function rankOf({ type }: Change): 0 | 1 {
  return type === 'expire' ? 1 : 0
}
