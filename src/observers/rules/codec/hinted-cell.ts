import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Hint, StoredClaim } from '../hinted-cell.js'

/** @param revision unique bytes. */
export function encodeHint({ commitTs, depth }: Omit<Hint, 'value'>, revision: Uint8Array): Buffer {
  return packRecord([revision, commitTs, depth])
}

export function decodeHint(value: Uint8Array): Hint {
  const [, commitTs, depth] = unpackRecord(value, 'hint', 3)
  return { value, commitTs: asInteger(commitTs, 'hint'), depth: asInteger(depth, 'hint') }
}

/** @param revision unique bytes. */
export function encodeClaim({ fence, untilMs, worker, leaseMs }: StoredClaim, revision: Uint8Array): Buffer {
  return packRecord([fence, untilMs, worker, leaseMs, revision])
}

export function decodeClaim(value: Uint8Array): StoredClaim {
  const [fence, untilMs, worker, leaseMs] = unpackRecord(value, 'claim', 5)
  if (typeof worker !== 'string') throw new CorruptRecord('a claim record holds a bad name')
  return {
    value,
    fence: asInteger(fence, 'claim'),
    untilMs: asInteger(untilMs, 'claim'),
    worker,
    leaseMs: asInteger(leaseMs, 'claim'),
  }
}
