import { keyText } from './key-text.js'

/** `[start, end)`; an absent bound is open. */
export interface KeyRange {
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}

/** The first key after `key`. */
export function afterKey(key: Uint8Array): Uint8Array {
  const after = new Uint8Array(key.length + 1)
  after.set(key)
  return after
}

/** The first key after all that start with `prefix`; undefined when there is none (all bytes 0xFF). */
export function afterPrefix(prefix: Uint8Array): Uint8Array | undefined {
  const last = prefix.findLastIndex((byte) => byte !== 0xff)
  if (last === -1) return undefined
  const end = new Uint8Array(prefix.subarray(0, last + 1)) // A copy; a Buffer's slice is none.
  end[last] = (end[last] as number) + 1
  return end
}

/**
 * The same keys in ranges that neither overlap nor touch, ascending: whoever walks over each walks over no key twice, however
 * many ranges a client names.
 */
export function mergedRanges(ranges: readonly KeyRange[]): readonly KeyRange[] {
  if (ranges.length < 2) return ranges
  const sorted = ranges
    .map((range) => ({ range, from: range.start === undefined ? '' : keyText(range.start) }))
    .sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0))
  const merged: KeyRange[] = []
  /** Where the last of `merged` ends; undefined: nowhere. */
  let to: string | undefined = ''
  for (const { range, from } of sorted) {
    const last = merged.at(-1)
    const end = range.end && keyText(range.end)
    if (last === undefined || (to !== undefined && from > to)) {
      merged.push(range)
      to = end
    } else if (to !== undefined && (end === undefined || end > to)) {
      merged[merged.length - 1] = { start: last.start, end: range.end }
      to = end
    }
  }
  return merged
}
