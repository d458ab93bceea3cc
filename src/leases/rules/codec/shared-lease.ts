import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, asOneOf, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { SharedLease } from '../shared-lease.js'

const LEASE = 'lease'
const STATES = ['free', 'held', 'ending'] as const

/**
 * [fence, ttl_ms, holder, state, ends_ts, has_keys, nonce]; the name is in the name of the record.
 * @param nonce unlike that of every other record, so that no two are equal.
 */
export function encodeSharedLease(lease: SharedLease, nonce: Uint8Array): Buffer {
  const { fence, ttlMs, holder, state, endsTs, hasKeys } = lease
  return packRecord([fence, ttlMs, holder, STATES.indexOf(state), endsTs, hasKeys ? 1 : 0, nonce])
}

/** @throws CorruptRecord */
export function decodeSharedLease(bytes: Uint8Array): SharedLease {
  const [fence, ttlMs, holder, state, endsTs, hasKeys] = unpackRecord(bytes, LEASE, 7)
  if (typeof holder !== 'string') throw new CorruptRecord('a lease record holds a bad holder')
  return {
    fence: asInteger(fence, LEASE),
    ttlMs: asInteger(ttlMs, LEASE),
    holder,
    state: asOneOf(state, LEASE, STATES),
    endsTs: asInteger(endsTs, LEASE),
    hasKeys: asInteger(hasKeys, LEASE) === 1,
  }
}
