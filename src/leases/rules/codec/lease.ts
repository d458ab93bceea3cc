import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, asOneOf, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { LeaseRecord } from '../lease-record.js'

const LEASE = 'lease'
const STATES = ['free', 'held', 'ending'] as const
const NO_NONCE = new Uint8Array()

/**
 * [fence, ttl_ms, holder, state, ends_ts, has_keys, nonce]; the record's name has the name of the lease.
 * @param nonce makes every record different, where several servers change it.
 */
export function encodeLease(lease: LeaseRecord, nonce: Uint8Array = NO_NONCE): Buffer {
  const { fence, ttlMs, holder, state, endsTs, hasKeys } = lease
  return packRecord([fence, ttlMs, holder, STATES.indexOf(state), endsTs, hasKeys ? 1 : 0, nonce])
}

export function decodeLease(bytes: Uint8Array): LeaseRecord {
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
