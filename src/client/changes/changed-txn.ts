import type { FeedChange } from '../../changes/rules/changes-api.js'
import type { Timestamp } from '../../timestamp.js'
import { type As, type Read, readKey, readValue } from '../bytes.js'
import { type Versioned, versioned } from '../snapshot.js'

/**
 * A committed transaction with its changes of the selected keys, or a part of it. A snapshot is delivered as transactions too,
 * whose changes put the existing pairs.
 */
export interface ChangedTxn<A extends As = 'text', K extends boolean = false, O extends boolean = false> {
  /** Whether the changes are pairs of the snapshot at `commitTs`. */
  readonly isSnapshot: boolean
  readonly commitTs: Timestamp
  /** For a snapshot the same as `commitTs`. */
  readonly startTs: Timestamp
  /** In the order of the keys. */
  readonly changes: readonly ChangedKey<A, K, O>[]
  /** 0, 1, ...: long transactions and snapshots are delivered in parts. */
  readonly part: number
  /** Whether this is the last part. That of a snapshot may have no changes. */
  readonly isLast: boolean
  /** Marks everything up to here as delivered. Pass it as `position` to continue here in another loop. */
  readonly position: string
}

export type ChangedKey<A extends As = 'text', K extends boolean = false, O extends boolean = false> =
  | PutKey<A, K, O>
  | DeletedKey<A, O>
  | DeletedRange

export interface PutKey<A extends As, K extends boolean, O extends boolean> {
  readonly op: 'put'
  readonly key: Read<A>
  readonly value: K extends false ? Read<A> : K extends true ? undefined : Read<A> | undefined
  readonly commitTs: Timestamp
  /** When the version expires; undefined: it does not, or `keysOnly` was set. */
  readonly expireTs: Timestamp | undefined
  readonly old: Old<A, O>
}

export interface DeletedKey<A extends As, O extends boolean> {
  readonly op: 'delete' | 'expire'
  readonly key: Read<A>
  readonly commitTs: Timestamp
  readonly old: Old<A, O>
}

/**
 * All keys from `start` up to but not including `end` were removed, with their history. The bounds may be bytes that are not
 * text.
 */
export interface DeletedRange {
  readonly op: 'delete_range'
  readonly start: Uint8Array
  readonly end: Uint8Array
  readonly commitTs: Timestamp
}

/** The version before the change; null when there was none. undefined unless `oldValues` was set. */
type Old<A extends As, O extends boolean> = O extends false ? undefined : Versioned<A> | null

export function changedKeyOf<A extends As, K extends boolean, O extends boolean>(
  { key, op, value, old, expireTs, end }: FeedChange,
  commitTs: Timestamp,
  as: A,
): ChangedKey<A, K, O> {
  if (op === 'delete_range') return { op, start: key, end: end ?? key, commitTs }
  const before = { old: (old && versioned(old, as, key)) as Old<A, O> }
  if (op !== 'put') return { op, key: readKey(key, as), commitTs, ...before }
  const put = { op, key: readKey(key, as), value: value && readValue(value, as, key), commitTs, expireTs, ...before }
  return put as PutKey<A, K, O>
}
