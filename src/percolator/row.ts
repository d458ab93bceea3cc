import type { KvError } from '../errors/kv-error.js'
import type { Timestamp } from '../timestamp.js'
import type { Lock } from './lock.js'
import { expiryTs, isData, type WriteRecord } from './write.js'

/**
 * How much of a key's history an action may look at. A store reads records newest first and stops as soon as the history is long
 * enough, so it usually reads one record or none.
 * - `none`: no record at all.
 * - `since`: every record with `commitTs >= startTs`, which shows the transaction's own record and newer versions. Older records
 *   may be present or not.
 * - `txn`: down to and including the first record with `commitTs < startTs`, which also shows an overlapped record and the
 *   neighbour that a new Rollback record may collapse. The neighbour may be missing when it is older than the opening of the
 *   store, or when no record is newer than `startTs`: one look-up then replaces a walk.
 * - `data`: further, down to the first Put or Delete with `commitTs < startTs`, which shows whether a value exists.
 * - `all`: every record.
 */
export type HistoryDepth = 'none' | 'since' | 'txn' | 'data' | 'all'

/** One key as an action sees it. `writes`: newest first, as deep as the action's `HistoryDepth` asks. */
export interface RowView {
  readonly key: Uint8Array
  readonly lock: Lock | undefined
  readonly writes: readonly WriteRecord[]
}

export function endsHistory(write: WriteRecord, startTs: Timestamp, depth: HistoryDepth): boolean {
  if (depth === 'all') return false
  return write.commitTs < startTs && (depth !== 'data' || isData(write))
}

/** A change to one cell. A store applies all mutations of a request in one atomic batch. */
export type Mutation =
  | { readonly type: 'put-lock'; readonly key: Uint8Array; readonly lock: Lock }
  | { readonly type: 'delete-lock'; readonly key: Uint8Array }
  | {
      readonly type: 'put-write'
      readonly key: Uint8Array
      readonly write: WriteRecord
      /** The record exists already and only gets its flag: no commit. */
      readonly isFlag?: true
    }
  | {
      readonly type: 'delete-write'
      readonly key: Uint8Array
      readonly commitTs: Timestamp
      /** Present when the version had one. */
      readonly expiryTs?: Timestamp
    }
  | { readonly type: 'put-value'; readonly key: Uint8Array; readonly startTs: Timestamp; readonly value: Uint8Array }
  | { readonly type: 'delete-value'; readonly key: Uint8Array; readonly startTs: Timestamp }

export type Outcome<T, E = KvError> =
  | { readonly ok: true; readonly value: T; readonly mutations: readonly Mutation[] }
  | { readonly ok: false; readonly error: E }

export function deleteWrite(key: Uint8Array, write: WriteRecord): Mutation {
  const { commitTs } = write
  return { type: 'delete-write', key, commitTs, ...(write.expireTs === 0 ? {} : { expiryTs: expiryTs(write) }) }
}

export function done<T>(value: T, mutations: readonly Mutation[] = []): Outcome<T, never> {
  return { ok: true, value, mutations }
}

export function refused<E>(error: E): Outcome<never, E> {
  return { ok: false, error }
}

/** A transaction's trace in the history of a key. TiKV `mvcc/reader/reader.rs`, `get_txn_commit_record`. */
export type TxnRecord =
  | { readonly kind: 'record'; readonly write: WriteRecord }
  | { readonly kind: 'overlapped-rollback' }
  /** `overlapped`: another transaction's record whose commitTs is this transaction's startTs. */
  | { readonly kind: 'none'; readonly overlapped: WriteRecord | undefined }

/** @param writes a history of depth `txn` or deeper for `startTs`. */
export function txnRecord(writes: readonly WriteRecord[], startTs: Timestamp): TxnRecord {
  for (const write of writes) {
    if (write.startTs === startTs) return { kind: 'record', write }
    if (write.commitTs === startTs) {
      return write.hasOverlappedRollback ? { kind: 'overlapped-rollback' } : { kind: 'none', overlapped: write }
    }
    if (write.commitTs < startTs) break
  }
  return { kind: 'none', overlapped: undefined }
}

/**
 * Finds the record of a transaction's rollback, even below newer records. Such a transaction must not lock the key again.
 * @param writes a history of depth `since` or deeper for `startTs`.
 */
export function rollbackOf(writes: readonly WriteRecord[], startTs: Timestamp): WriteRecord | undefined {
  return writes.find(
    (write) => write.commitTs === startTs && (write.type === 'rollback' || write.hasOverlappedRollback),
  )
}

/**
 * Drops other transactions' Rollback records ahead of the clock. A client can roll back a transaction of a future start_ts, and
 * that must neither block this transaction nor make it commit ahead of the clock.
 * @param clockTs the newest timestamp that is not in the future. @param startTs of the transaction, whose own rollback counts.
 */
export function recordsToPass(
  writes: readonly WriteRecord[],
  startTs: Timestamp,
  clockTs: Timestamp | undefined,
): readonly WriteRecord[] {
  if (clockTs === undefined || (writes[0]?.commitTs ?? 0) <= clockTs) return writes
  return writes.filter(({ type, commitTs }) => type !== 'rollback' || commitTs <= clockTs || commitTs === startTs)
}

/** Works in browsers, which lack Buffer. */
export function sameKey(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false
  return typeof Buffer === 'undefined' ? a.every((byte, i) => byte === b[i]) : Buffer.compare(a, b) === 0
}
