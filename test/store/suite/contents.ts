import type { Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { text, utf8 } from '../support.js'

/** Longer than any store keeps inside its records. */
export const LONG = 'x'.repeat(5000)

/** Stands before its successor in the order of keys. */
export const keyNumber = (n: number): string => `key${String(n).padStart(5, '0')}`

export async function lockedKeys(store: Store): Promise<string[]> {
  return (await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks.map(({ key }) => text(key))
}

/** commit_ts of each record of a key, newest first. */
export async function versionsOf(store: Store, key: string): Promise<number[]> {
  return (await store.mvccGetByKey({ key: utf8(key) })).writes.map(({ commitTs }) => commitTs)
}

/** start_ts of each long value of a key, newest first. */
export async function longValuesOf(store: Store, key: string): Promise<number[]> {
  return (await store.mvccGetByKey({ key: utf8(key) })).values.map(({ startTs }) => startTs)
}
