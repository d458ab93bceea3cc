import { afterKey, afterPrefix, type KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'

/** The range options of abstract-level, encoded. */
export interface LevelRange {
  readonly gt?: Uint8Array | undefined
  readonly gte?: Uint8Array | undefined
  readonly lt?: Uint8Array | undefined
  readonly lte?: Uint8Array | undefined
}

const FIRST = new Uint8Array()

/** The keys of a range on the server. As in abstract-level `gte` wins over `gt`, and `lte` over `lt`. */
export function keyRangeOf(prefix: Uint8Array, { gt, gte, lt, lte }: LevelRange): KeyRange {
  const from = gte ?? (gt === undefined ? FIRST : afterKey(gt))
  const to = lte === undefined ? lt : afterKey(lte)
  return { start: prefixed(prefix, from), end: to === undefined ? afterPrefix(prefix) : prefixed(prefix, to) }
}

/** The part of a range from `key` on, in the direction of the iterator. */
export function rangeFrom({ start, end }: KeyRange, key: Uint8Array, reverse: boolean): KeyRange {
  if (reverse) return { start, end: isBefore(key, end) ? afterKey(key) : end }
  return { start: start !== undefined && isBefore(key, start) ? start : key, end }
}

export function isEmpty({ start, end }: KeyRange): boolean {
  return start !== undefined && !isBefore(start, end)
}

/** @param limit of abstract-level, where -1 is none. */
export function scanLimit(limit: number): number {
  return limit < 0 ? Number.POSITIVE_INFINITY : limit
}

export function prefixed(prefix: Uint8Array, key: Uint8Array): Uint8Array {
  const joined = new Uint8Array(prefix.length + key.length)
  joined.set(prefix)
  joined.set(key, prefix.length)
  return joined
}

/** @param end undefined is after all keys. */
function isBefore(key: Uint8Array, end: Uint8Array | undefined): boolean {
  return end === undefined || keyText(key) < keyText(end)
}
