import type { Timestamp } from '../timestamp.js'
import { requireIdempotencyKey } from './idempotency-key.js'
import type { Absent } from './options.js'

/**
 * What must hold for a write. A condition that is undefined would be none at all, so it is not taken: the version of an
 * absent key is undefined, and `ifAbsent` asks for that.
 */
export type WriteConditions = VersionCondition | (AbsenceCondition & { readonly ifMatch?: Absent })

export type VersionCondition = {
  /** Only over this version. */
  readonly ifMatch: Timestamp
  readonly ifAbsent?: false
}

type AbsenceCondition = {
  /** Only where there is no such key. */
  readonly ifAbsent?: boolean
}

export interface OnceOptions {
  /** Of the caller's own, for a write that is one and the same in several calls. */
  readonly idempotencyKey?: string | undefined
}

/** A write of one key, with at most one condition. */
export interface Write {
  readonly key: Uint8Array
  /** undefined: the key is deleted. */
  readonly value: Uint8Array | undefined
  readonly ifMatch: Timestamp | undefined
  readonly ifAbsent: boolean
  readonly idempotencyKey: string | undefined
}

/** @throws TypeError for both conditions, and for an idempotency key that the server does not take. */
export function writeOf(
  key: Uint8Array,
  value: Uint8Array | undefined,
  { ifMatch, ifAbsent = false, idempotencyKey }: WriteConditions & OnceOptions,
): Write {
  if (ifMatch !== undefined && ifAbsent) throw new TypeError('give ifMatch or ifAbsent, not both')
  if (idempotencyKey !== undefined) requireIdempotencyKey(idempotencyKey)
  return { key, value, ifMatch: ifMatch as Timestamp | undefined, ifAbsent, idempotencyKey }
}
