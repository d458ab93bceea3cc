import { requireValue, tooLarge } from '../bytes/byte-limits.js'
import { invalid } from '../errors/kv-error.js'
import { KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, KV_WRITE_BYTES_MAX, type Limits } from '../limits.js'
import { type Expiry, NEVER } from '../percolator/expiry.js'
import { STAMP_LENGTHS } from '../percolator/stamped-key.js'
import { TIMESTAMP_MAX, timestampFromMs } from '../timestamp.js'
import type { Check } from '../txn/check.js'
import type { OneShot } from '../txn/one-shot.js'
import type { Op } from '../txn/op.js'
import { type KvDatabase, storedKey } from './kv-database.js'
import { atomicWriteFrom, type CheckMessage, type Mutation } from './messages.js'
import { isValid, type KvValue, kvValueOf, storedValue } from './stored-value.js'
import { type Combine, sumMutation, u64Mutation } from './sum.js'
import { commitTsOf, VERSIONSTAMP_BYTES } from './versionstamp.js'

/** `MutationType` of the protocol. */
const SET = 1
const DELETE = 2
const SUM = 3
const MAX = 4
const MIN = 5
const SET_SUFFIX_VERSIONSTAMPED_KEY = 9

/** @throws KvError `invalid_argument`, `payload_too_large` */
export function atomicWriteOf(body: Uint8Array, database: KvDatabase, limits: Limits): Pick<OneShot, 'checks' | 'ops'> {
  const { checks, mutations } = atomicWriteFrom(body)
  let bytes = 0
  for (const { key } of checks) bytes += key.length
  for (const { key, value } of mutations) bytes += key.length + (value?.data.length ?? 0)
  if (bytes > KV_WRITE_BYTES_MAX) throw tooLarge('body', bytes, KV_WRITE_BYTES_MAX)
  return {
    checks: checks.map((check) => checkOf(check, database, limits)),
    ops: mutations.map((mutation) => opOf(mutation, database, limits)),
  }
}

/** No version has this commit_ts: the check fails. */
const NONE: Check['commitTs'] = []

function checkOf({ key, versionstamp }: CheckMessage, database: KvDatabase, limits: Limits): Check {
  // Denokv allows a key that can be read but not written.
  const stored = storedKey(key, database, limits, KV_KEY_BYTES_MAX + 1)
  if (versionstamp.length === 0) return { key: stored, commitTs: 0 }
  if (versionstamp.length !== VERSIONSTAMP_BYTES) throw invalid('versionstamp', 'Invalid versionstamp.')
  return { key: stored, commitTs: commitTsOf(versionstamp) ?? NONE }
}

function opOf(mutation: Mutation, database: KvDatabase, limits: Limits): Op {
  const { type, value } = mutation
  const key = storedKey(mutation.key, database, limits)
  const expiry = expiryOf(mutation.expireAtMs)
  if (type === DELETE) return { op: 'delete', key }
  if (value === undefined || !isValid(value)) throw badMutation()
  if (value.data.length > KV_VALUE_BYTES_MAX) throw tooLarge('value', value.data.length, KV_VALUE_BYTES_MAX)
  if (type === SET || type === SET_SUFFIX_VERSIONSTAMPED_KEY) {
    const stored = storedValue(value)
    requireValue(stored, 'value', limits.valueBytesMax)
    if (type === SET) return { op: 'put', key, value: stored, expiry }
    const bytes = key.length + STAMP_LENGTHS.text
    if (bytes > limits.keyBytesMax) throw tooLarge('key', bytes, limits.keyBytesMax)
    return { op: 'put', key, value: stored, expiry, stamp: 'text' }
  }
  return { op: 'update', key, update: updateBy(combineOf(mutation, value), limits), expiry: expiry ?? NEVER }
}

function combineOf({ type, sumMin: min, sumMax: max, sumClamp: clamp }: Mutation, value: KvValue): Combine {
  if (type === SUM) return sumMutation(value, { min, max, clamp })
  if (type === MAX) return u64Mutation('max', value)
  if (type === MIN) return u64Mutation('min', value)
  throw badMutation()
}

/** A sum of bigints can be longer than both. */
function updateBy(combine: Combine, { valueBytesMax }: Limits): (old: Uint8Array | undefined) => Uint8Array {
  return (old) => {
    const combined = combine(old && kvValueOf(old))
    if (combined.data.length > KV_VALUE_BYTES_MAX) throw tooLarge('value', combined.data.length, KV_VALUE_BYTES_MAX)
    const stored = storedValue(combined)
    requireValue(stored, 'value', valueBytesMax)
    return stored
  }
}

/** 0 and -1: never. */
function expiryOf(expireAtMs: number): Expiry | undefined {
  if (expireAtMs === 0 || expireAtMs === -1) return undefined
  if (expireAtMs < 0) throw invalid('expire_at_ms', 'Invalid mutation expire at.')
  return { expireTs: Math.min(timestampFromMs(expireAtMs), TIMESTAMP_MAX) }
}

function badMutation(): Error {
  return invalid('mutations', 'Invalid mutation kind or arguments.')
}
