import { keyText } from '../bytes/key-text.js'
import { RESERVED_PREFIX } from '../bytes/reserved-keys.js'
import type { Timestamp } from '../timestamp.js'
import type { PrewriteMutation } from './api.js'

/**
 * How a versionstamped put makes its key once the commit_ts of its transaction is known. The order of such keys is that of their
 * commits.
 *
 * - `bytes`: the given key, the commit_ts as 8 bytes and the counter of the put in its transaction as 2, both big endian.
 * - `text`: the given key, and as a string in Deno's encoding of keys the 20 hexadecimal digits of the commit_ts and two zero bytes.
 *   All puts of one transaction with the same given key write the same key.
 */
export type Stamp = 'bytes' | 'text'

/** A key that its transaction versionstamps, before the commit_ts is known. */
export interface Stamped {
  readonly key: Uint8Array
  /** Of the transaction's versionstamped puts, from 0. */
  readonly counter: number
}

export interface StampedPut extends Stamped {
  readonly stamp: Stamp
  readonly value: Uint8Array
  /** 0: never. */
  readonly expireTs: Timestamp
}

const TS_BYTES = 8
const STAMP_BYTES = TS_BYTES + 2
/** Versionstamped puts in one transaction: the counter has two bytes. */
export const STAMPS_MAX = 0x1_00_00
/** By how much the key that is written is longer than the given one. */
export const STAMP_LENGTHS = { bytes: STAMP_BYTES, text: 2 * STAMP_BYTES + 2 } as const satisfies Record<Stamp, number>

/** Works in browsers, which lack Buffer. */
export function stampedKey({ key, counter }: Stamped, commitTs: Timestamp, stamp: Stamp = 'bytes'): Uint8Array {
  const out = new Uint8Array(key.length + STAMP_LENGTHS[stamp])
  out.set(key)
  if (stamp === 'bytes') {
    const view = new DataView(out.buffer)
    view.setUint32(key.length, Math.floor(commitTs / 2 ** 32))
    view.setUint32(key.length + 4, commitTs % 2 ** 32)
    view.setUint16(key.length + TS_BYTES, counter)
    return out
  }
  out[key.length] = 0x02 // Begins a string, which a zero byte ends.
  const digits = commitTs
    .toString(16)
    .padStart(2 * TS_BYTES, '0')
    .padEnd(2 * STAMP_BYTES, '0')
  for (let i = 0; i < digits.length; i++) out[key.length + 1 + i] = digits.charCodeAt(i)
  return out
}

/** No client can name these, so the mutations of one transaction have different keys, and no other transaction has them. */
const PLACES = Uint8Array.of(...RESERVED_PREFIX, ...new TextEncoder().encode('stamp/'))

/** @returns one mutation per key: of puts that write the same key, the last one counts. */
export function stampedMutations(puts: readonly StampedPut[], startTs: Timestamp): PrewriteMutation[] {
  const mutations = new Map<string, PrewriteMutation>()
  for (const put of puts) {
    const { counter, stamp, value, expireTs } = put
    const keyAt = (commitTs: Timestamp): Uint8Array => stampedKey(put, commitTs, stamp)
    const key = stampedKey({ key: PLACES, counter }, startTs)
    mutations.set(keyText(keyAt(startTs)), { op: 'put', key, keyAt, value, expireTs })
  }
  return [...mutations.values()]
}

/** The key that the primary should be: one that is known before the commit, if there is any. */
export function primaryAmong(mutations: readonly PrewriteMutation[]): Uint8Array | undefined {
  return (mutations.find(({ keyAt }) => keyAt === undefined) ?? mutations[0])?.key
}
