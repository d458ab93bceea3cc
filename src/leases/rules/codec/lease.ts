import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { StoredLease } from '../lease.js'

const LEASE = 'lease'

/** [fence, ttl_ms, holder]; the name is in the name of the record. */
export function encodeLease({ fence, ttlMs, holder }: StoredLease): Buffer {
  return packRecord([fence, ttlMs, holder])
}

/** @throws CorruptRecord */
export function decodeLease(bytes: Uint8Array): StoredLease {
  const [fence, ttlMs, holder] = unpackRecord(bytes, LEASE, 3)
  if (typeof holder !== 'string') throw new CorruptRecord('a lease record holds a bad holder')
  return { fence: asInteger(fence, LEASE), ttlMs: asInteger(ttlMs, LEASE), holder }
}
