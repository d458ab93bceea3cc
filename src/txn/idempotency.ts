import { asBuffer } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { IDEMPOTENCY_MS } from '../limits.js'
import { asBytes, asInteger, packRecord, unpackRecord } from '../percolator/codec/record.js'

/** One request that must take effect once, however often it is sent. */
export interface Idempotency {
  /** What the client calls it: 1 to 255 bytes. */
  readonly key: Uint8Array
  /** Whose outcomes share a bound; undefined: callers are not told apart. */
  readonly caller?: string | undefined
  /** Nothing is stored for callers who may only read. */
  readonly mayWrite: boolean
  /** A hash of all that the request asks for. */
  readonly fingerprint: Uint8Array
}

/** @param isReplayed the answer of an earlier request with the same idempotency key; this one wrote nothing. */
export interface Once<T> {
  readonly answer: T
  readonly isReplayed: boolean
}

const WHAT = 'outcome'

/** [fingerprint, expires_at_ms (by the store's `steadyMs`), outcome], where the outcome is any MessagePack value. */
export function encodeOutcome({ fingerprint }: Idempotency, nowMs: number, outcome: object): Buffer {
  return packRecord([fingerprint, nowMs + IDEMPOTENCY_MS, packRecord([outcome])])
}

/** What a stored record says to a request that comes with its key. @throws KvError `idempotency_mismatch`. */
export function replay<T>(record: Uint8Array, request: Idempotency): T {
  const [fingerprint, , outcome] = unpackRecord(record, WHAT, 3)
  if (!asBuffer(request.fingerprint).equals(asBytes(fingerprint, WHAT)))
    throw new KvError('idempotency_mismatch', 'this Idempotency-Key was used for another request', {})
  return unpackRecord(asBytes(outcome, WHAT), WHAT, 1)[0] as T
}

export function isOutcomeExpired(record: Uint8Array, nowMs: number): boolean {
  return asInteger(unpackRecord(record, WHAT, 3)[1], WHAT) <= nowMs
}
