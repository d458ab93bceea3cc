import type { FeedChange } from '../../changes/rules/changes-api.js'
import type { Timestamp } from '../../timestamp.js'
import { type As, type Read, readKey, readValue } from '../bytes.js'
import { type Versioned, versioned } from '../snapshot.js'

/**
 * A committed transaction: its changes of the keys that were asked for, or a part of them. A snapshot comes as transactions too, whose
 * changes put the pairs that exist.
 */
export interface ChangedTxn<A extends As = 'text', K extends boolean = false, O extends boolean = false> {
  /** The changes are pairs of the snapshot at `commitTs`. */
  readonly isSnapshot: boolean
  readonly commitTs: Timestamp
  /** Of a snapshot: `commitTs`. */
  readonly startTs: Timestamp
  /** In the order of the keys. */
  readonly changes: readonly ChangedKey<A, K, O>[]
  /** 0, 1, ...: long transactions and snapshots come in parts. */
  readonly part: number
  /** Whether this is the last part. That of a snapshot may have no changes. */
  readonly isLast: boolean
  /** Everything up to here has been given. As `position` of another loop it continues here. */
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
  /** When it expires, if it does. Not where only keys were asked for. */
  readonly expireTs: Timestamp | undefined
  readonly old: Old<A, O>
}

export interface DeletedKey<A extends As, O extends boolean> {
  readonly op: 'delete' | 'expire'
  readonly key: Read<A>
  readonly commitTs: Timestamp
  readonly old: Old<A, O>
}

/** All keys from `start` up to but not including `end` were removed, with their history. Bounds need not be text. */
export interface DeletedRange {
  readonly op: 'delete_range'
  readonly start: Uint8Array
  readonly end: Uint8Array
  readonly commitTs: Timestamp
}

/** The version before; null when there was none. undefined unless it was asked for. */
type Old<A extends As, O extends boolean> = O extends false ? undefined : Versioned<A> | null

/** @throws TypeError when text is wanted and a key or a value is not UTF-8. */
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
