import type { Timestamp } from '../timestamp.js'

export interface KeyChange {
  readonly type: 'put' | 'delete'
  readonly key: Uint8Array
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  /** Absent for a delete, when it was not asked for, or when it is not known yet. */
  readonly value?: Uint8Array | undefined
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

/** Follows from the versions: a version is absent from `expireTs` on, and no log has a record of it. */
export interface ExpiryChange {
  readonly type: 'expire'
  readonly key: Uint8Array
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  readonly expireTs: Timestamp
  readonly version: { readonly commitTs: Timestamp; readonly startTs: Timestamp }
}

export type LoggedChange = KeyChange | RangeChange

export type Change = LoggedChange | ExpiryChange

/** The order of a feed: by commit_ts, start_ts, key. Expiries come after everything committed at their timestamp. */
export function compareChanges(a: Change, b: Change): number {
  return a.commitTs - b.commitTs || a.startTs - b.startTs || rankOf(a) - rankOf(b) || Buffer.compare(a.key, b.key)
}

/** True when both are of one transaction. All expiries of a timestamp count as one, although no transaction committed them. */
export function isSameTxn(a: Change, b: Change): boolean {
  return a.commitTs === b.commitTs && a.startTs === b.startTs && rankOf(a) === rankOf(b)
}

/** A delete_range may have the timestamp of expiries. */
function rankOf({ type }: Change): 0 | 1 {
  return type === 'expire' ? 1 : 0
}
