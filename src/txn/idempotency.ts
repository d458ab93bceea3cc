import { asBuffer } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { IDEMPOTENCY_MS } from '../limits.js'
import type { Version } from '../percolator/api.js'
import { asBytes, asInteger, packRecord, unpackRecord } from '../percolator/codec/record.js'

export interface Idempotency {
  /** 1 to 255 bytes, chosen by the client. */
  readonly key: Uint8Array
  /** All outcomes of one caller share a limit. undefined when the server does not distinguish callers. */
  readonly caller?: string | undefined
  readonly mayWrite: boolean
  readonly fingerprint: Uint8Array
}

export interface Once<T> {
  readonly answer: T
  /** The answer is that of an earlier request under the same key. This request wrote nothing. */
  readonly isReplayed: boolean
}

/** Stands in a stored answer for the row's own commit_ts, which is not known yet when the transaction puts the row. */
export const COMMIT_TS_OF_ROW = 0

const WHAT = 'outcome'

/**
 * The value is `[fingerprint, expires_at_ms, outcome]`: the time is the store's `steadyMs`, the outcome any MessagePack value.
 */
export function encodeOutcome({ fingerprint }: Idempotency, nowMs: number, outcome: object): Buffer {
  return packRecord([fingerprint, nowMs + IDEMPOTENCY_MS, packRecord([outcome])])
}

/** @returns the stored answer. @throws KvError `idempotency_mismatch` when the stored one is of another request. */
export function replay<T>({ value, commitTs }: Pick<Version, 'value' | 'commitTs'>, request: Idempotency): T {
  const [fingerprint, , outcome] = unpackRecord(value, WHAT, 3)
  if (!asBuffer(request.fingerprint).equals(asBytes(fingerprint, WHAT)))
    throw new KvError('idempotency_mismatch', 'this Idempotency-Key was used for another request', {})
  const answer = unpackRecord(asBytes(outcome, WHAT), WHAT, 1)[0] as T & { commitTs?: unknown }
  return answer.commitTs === COMMIT_TS_OF_ROW ? { ...answer, commitTs } : answer
}

export function isOutcomeExpired(value: Uint8Array, nowMs: number): boolean {
  return asInteger(unpackRecord(value, WHAT, 3)[1], WHAT) <= nowMs
}
