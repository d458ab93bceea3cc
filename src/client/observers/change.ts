import type { MarkKind } from '../../observers/rules/cell.js'
import type { Notification } from '../../observers/rules/observers-api.js'
import type { Timestamp } from '../../timestamp.js'
import { type As, type Read, readKey, readValue } from '../bytes.js'

/** A key that has changed since the last committed run on it. */
export interface Change<A extends As = 'text'> {
  readonly key: Read<A>
  /** In the snapshot of the transaction; undefined when the key is absent. */
  readonly value: Read<A> | undefined
  /** Of a key that has expired and is absent: the value that it had, unless the version was collected. */
  readonly old: Read<A> | undefined
  /** Timestamp of the newest change when the key was claimed. */
  readonly commitTs: Timestamp
  readonly kind: MarkKind
  /** 1 for the first run. */
  readonly attempt: number
}

export function changeOf<A extends As>(
  { key, commitTs, kind, attempt, old }: Notification,
  value: Uint8Array | undefined,
  as: A,
): Change<A> {
  return {
    key: readKey(key, as),
    value: value && readValue(value, as, key),
    old: value === undefined && old !== undefined ? readValue(old, as, key) : undefined,
    commitTs,
    kind,
    attempt,
  }
}
