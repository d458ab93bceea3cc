import { pairBytes } from '../bytes/answer-size.js'
import type { KeyRange } from '../bytes/key-range.js'
import type { MergedPair } from '../coordinator/write-buffer.js'
import type { Timestamp } from '../timestamp.js'
import { isAnswerTooLarge } from './answer-too-large.js'
import { AS, type As, type Read, readKey, readValue } from './bytes.js'
import { type Expiring, expiringOf } from './expiry.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions, rangeAfter } from './key-range.js'
import { BOOLEAN, COUNT, type Kinds } from './options.js'

export type ScanOptions<A extends As = As, K extends boolean = boolean> = RangeOptions & {
  /** The type in which keys and values are returned. Default `text`. */
  readonly as?: A | undefined
  /** Maximum number of pairs. Default: all. */
  readonly limit?: number | undefined
  /** Scans from the end of the range to its start. */
  readonly reverse?: boolean | undefined
  /** Returns pairs without values. The server does not send them. */
  readonly keysOnly?: K | undefined
}

export const SCAN_KINDS: Kinds<ScanOptions> = {
  ...RANGE_KINDS,
  as: AS,
  limit: COUNT,
  reverse: BOOLEAN,
  keysOnly: BOOLEAN,
}

/** @typeParam Ts includes undefined in a transaction, whose own writes have no `commitTs` yet. */
export type ScanPair<A extends As, K extends boolean, Ts = Timestamp> = K extends true
  ? { readonly key: Read<A>; readonly commitTs: Ts } & Expiring
  : { readonly key: Read<A>; readonly value: Read<A>; readonly commitTs: Ts } & Expiring

export interface PageRequest extends KeyRange {
  readonly limit: number
  readonly reverse: boolean
  readonly keyOnly: boolean
}

const PAGE_FIRST = 32
const PAGE_MAX = 1024
/** Pages grow up to this many bytes of keys and values, and shrink above it. */
const PAGE_BYTES_GOAL = 1024 * 1024

/**
 * Yields the pairs of a range. A page is read when the caller has used up the one before.
 * @param readPage must read the same snapshot each time.
 */
export async function* scanPages<A extends As, K extends boolean, Ts extends Timestamp | undefined>(
  options: ScanOptions<A, K>,
  readPage: (request: PageRequest) => Promise<{ readonly pairs: readonly (MergedPair & { readonly commitTs?: Ts })[] }>,
): AsyncGenerator<ScanPair<A, K, Ts>, void, undefined> {
  const { as = 'text' as A, limit = Number.POSITIVE_INFINITY, reverse = false, keysOnly = false } = options
  let range = keyRangeOf(options)
  let size = keysOnly ? PAGE_MAX : PAGE_FIRST
  for (let left = limit; left > 0; ) {
    const asked = Math.min(size, left)
    let pairs: readonly MergedPair[]
    try {
      pairs = (await readPage({ ...range, limit: asked, reverse, keyOnly: keysOnly })).pairs
    } catch (error) {
      if (asked === 1 || !isAnswerTooLarge(error)) throw error
      size = Math.ceil(asked / 8)
      continue
    }
    for (const { key, value, commitTs, expireTs } of pairs) {
      const version = { commitTs, ...(value && { value: readValue(value, as, key) }) }
      const read = { key: readKey(key, as), ...version, ...expiringOf(expireTs) }
      yield read as unknown as ScanPair<A, K, Ts>
    }
    const last = pairs.at(-1)
    if (last === undefined || pairs.length < asked) return
    left -= pairs.length
    range = rangeAfter(range, last.key, reverse)
    if (pairsBytes(pairs) < PAGE_BYTES_GOAL) size = Math.min(PAGE_MAX, size * 2)
    else size = Math.max(1, Math.floor(size / 2))
  }
}

function pairsBytes(pairs: readonly MergedPair[]): number {
  return pairs.reduce((sum, pair) => sum + pairBytes(pair), 0)
}
