import { asBuffer } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { IDEMPOTENCY_MS } from '../limits.js'
import { asBytes, asInteger, packRecord, unpackRecord } from '../percolator/codec/record.js'
import type { Timestamp } from '../timestamp.js'

/** Identifies a request that must take effect once, even if the client sends it several times. */
export interface Idempotency {
  /** The client's name for the request: 1 to 255 bytes. */
  readonly key: Uint8Array
  /** The outcomes of one caller share a limit. undefined when the server does not distinguish callers. */
  readonly caller?: string | undefined
  /** False for a read-only caller, for whom no outcome is stored. */
  readonly mayWrite: boolean
  /** A hash of the whole request. */
  readonly fingerprint: Uint8Array
}

export interface Once<T> {
  readonly answer: T
  /** The answer is that of an earlier request with the same idempotency key. This request wrote nothing. */
  readonly isReplayed: boolean
}

const WHAT = 'outcome'

/** The record is `[fingerprint, expires_at_ms, outcome]`: the store's `steadyMs`, and any MessagePack value. */
export function encodeOutcome({ fingerprint }: Idempotency, nowMs: number, outcome: object): Buffer {
  return packRecord([fingerprint, nowMs + IDEMPOTENCY_MS, packRecord([outcome])])
}

/** A transaction that may commit at any moment, or has: its primary knows. */
export interface PendingOutcome {
  readonly startTs: Timestamp
  readonly primary: Uint8Array
}

/**
 * The record of a transaction before it commits: `[fingerprint, expires_at_ms, outcome, start_ts, primary]`. The commit_ts of the
 * outcome is 0.
 */
export function encodePending(
  { fingerprint }: Idempotency,
  nowMs: number,
  outcome: object,
  { startTs, primary }: PendingOutcome,
): Buffer {
  return packRecord([fingerprint, nowMs + IDEMPOTENCY_MS, packRecord([outcome]), startTs, primary])
}

/** @returns undefined for a record of a transaction that has committed. */
export function pendingOf(record: Uint8Array): PendingOutcome | undefined {
  const [, , , startTs, primary] = unpackRecord(record, WHAT, 3)
  return startTs === undefined ? undefined : { startTs: asInteger(startTs, WHAT), primary: asBytes(primary, WHAT) }
}

/** The record of a pending outcome whose transaction has committed. */
export function settledAt(record: Uint8Array, commitTs: Timestamp): Buffer {
  const [fingerprint, expiresAtMs, outcome] = unpackRecord(record, WHAT, 3)
  const [answer] = unpackRecord(asBytes(outcome, WHAT), WHAT, 1)
  return packRecord([fingerprint, expiresAtMs, packRecord([{ ...(answer as object), commitTs }])])
}

/** The stored answer for a repeat. @throws KvError `idempotency_mismatch` when the request is a different one. */
export function replay<T>(record: Uint8Array, request: Idempotency): T {
  const [fingerprint, , outcome] = unpackRecord(record, WHAT, 3)
  if (!asBuffer(request.fingerprint).equals(asBytes(fingerprint, WHAT)))
    throw new KvError('idempotency_mismatch', 'this Idempotency-Key was used for another request', {})
  return unpackRecord(asBytes(outcome, WHAT), WHAT, 1)[0] as T
}

export function isOutcomeExpired(record: Uint8Array, nowMs: number): boolean {
  return asInteger(unpackRecord(record, WHAT, 3)[1], WHAT) <= nowMs
}
