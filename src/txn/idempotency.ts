import { asBytes, asInteger, packRecord, unpackRecord } from '../percolator/codec/record.js'
import { KvError } from '../percolator/errors.js'
import { asBuffer } from '../percolator/key-text.js'
import type { Store, StoredOutcome } from '../store/store.js'

/** How long an outcome is replayed. */
export const IDEMPOTENCY_MS = 10 * 60 * 1000

/** One request that must take effect once, however often it is sent. */
export interface Idempotency {
  /** What the client calls it: 1 to 255 bytes. */
  readonly key: Uint8Array
  /** A hash of all that the request asks for. */
  readonly fingerprint: Uint8Array
}

/** @param isReplayed the answer of an earlier request with the same idempotency key; this one wrote nothing. */
export interface Once<T> {
  readonly answer: T
  readonly isReplayed: boolean
}

const WHAT = 'outcome'

/**
 * Runs a request, or answers what it answered before. A repeat that comes while the first still runs waits for it.
 * @param idempotency undefined: there is nothing to remember, and it simply runs.
 * @param run is given the function that makes what is to be stored with its commit, in the same atomic batch; where it
 *   stores nothing, its answer is stored afterwards.
 * @throws KvError `idempotency_mismatch`, and what `run` throws; nothing is remembered of a failure.
 */
export async function exactlyOnce<T extends object>(
  store: Store,
  idempotency: Idempotency | undefined,
  run: (stored: (answer: T) => StoredOutcome | undefined) => Promise<T>,
): Promise<Once<T>> {
  if (idempotency === undefined) return { answer: await run(() => undefined), isReplayed: false }
  return store.once(idempotency.key, async () => {
    const nowMs = store.steadyMs()
    const replayed = replay<T>(await store.outcome(idempotency.key), idempotency, nowMs)
    if (replayed !== undefined) return { answer: replayed, isReplayed: true }
    const outcomeOf = (answer: T): StoredOutcome => {
      return { key: idempotency.key, record: encodeOutcome(idempotency, nowMs, answer) }
    }
    let isStored = false
    const answer = await run((stored) => {
      isStored = true
      return outcomeOf(stored)
    })
    if (!isStored) await store.putOutcome(outcomeOf(answer))
    return { answer, isReplayed: false }
  })
}

/** [fingerprint, expires_at_ms (by the store's `steadyMs`), outcome], where the outcome is any MessagePack value. */
export function encodeOutcome({ fingerprint }: Idempotency, nowMs: number, outcome: object): Buffer {
  return packRecord([fingerprint, nowMs + IDEMPOTENCY_MS, packRecord([outcome])])
}

/**
 * What a stored record says to a request that comes with its key.
 * @returns undefined when there is no record, or none any more. @throws KvError `idempotency_mismatch`.
 */
export function replay<T>(record: Uint8Array | undefined, request: Idempotency, nowMs: number): T | undefined {
  if (record === undefined || isOutcomeExpired(record, nowMs)) return undefined
  const [fingerprint, , outcome] = unpackRecord(record, WHAT, 3)
  if (!asBuffer(request.fingerprint).equals(asBytes(fingerprint, WHAT)))
    throw new KvError('idempotency_mismatch', 'this Idempotency-Key was used for another request', {})
  return unpackRecord(asBytes(outcome, WHAT), WHAT, 1)[0] as T
}

export function isOutcomeExpired(record: Uint8Array, nowMs: number): boolean {
  return asInteger(unpackRecord(record, WHAT, 3)[1], WHAT) <= nowMs
}
