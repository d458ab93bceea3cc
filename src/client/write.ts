import type { Expiry } from '../percolator/expiry.js'
import type { Timestamp } from '../timestamp.js'
import { type ExpiryOptions, expiryOf } from './expiry.js'
import { requireIdempotencyKey } from './idempotency-key.js'
import type { Absent } from './options.js'

/**
 * Conditions of a write. An undefined `ifMatch` is refused, because it would silently mean "no condition": the version of an
 * absent key is undefined, and its condition is `ifAbsent`.
 */
export type WriteConditions = VersionCondition | (AbsenceCondition & { readonly ifMatch?: Absent })

export type VersionCondition = {
  /** Writes only if this is the present version of the key. */
  readonly ifMatch: Timestamp
  readonly ifAbsent?: false
}

type AbsenceCondition = {
  /** Writes only if the key is absent. */
  readonly ifAbsent?: boolean
}

export interface OnceOptions {
  /** Calls with the same key are one write. Default: a new key per call. */
  readonly idempotencyKey?: string | undefined
}

export interface Write {
  readonly key: Uint8Array
  /** undefined deletes the key. */
  readonly value: Uint8Array | undefined
  readonly ifMatch: Timestamp | undefined
  readonly ifAbsent: boolean
  readonly expiry: Expiry | undefined
  readonly idempotencyKey: string | undefined
}

export function writeOf(
  key: Uint8Array,
  value: Uint8Array | undefined,
  { ifMatch, ifAbsent = false, idempotencyKey, ...expiry }: WriteConditions & OnceOptions & ExpiryOptions,
): Write {
  if (ifMatch !== undefined && ifAbsent) throw new TypeError('give ifMatch or ifAbsent, not both')
  if (idempotencyKey !== undefined) requireIdempotencyKey(idempotencyKey)
  return { key, value, ifMatch: ifMatch as Timestamp | undefined, ifAbsent, expiry: expiryOf(expiry), idempotencyKey }
}

export interface Touch {
  readonly key: Uint8Array
  readonly expiry: Expiry
  readonly idempotencyKey: string | undefined
}
