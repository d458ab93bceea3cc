import { keyText } from './key-text.js'

/** `[start, end)`; an absent bound is open. */
export interface KeyRange {
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}

export function afterKey(key: Uint8Array): Uint8Array {
  const after = new Uint8Array(key.length + 1)
  after.set(key)
  return after
}

/** The first key after all keys with `prefix`; undefined when no such key exists (every byte is 0xFF). */
export function afterPrefix(prefix: Uint8Array): Uint8Array | undefined {
  const last = prefix.findLastIndex((byte) => byte !== 0xff)
  if (last === -1) return undefined
  const end = new Uint8Array(prefix.subarray(0, last + 1)) // Copies. `slice` of a Buffer would share its memory.
  end[last] = (end[last] as number) + 1
  return end
}

/**
 * The same keys in ascending ranges that neither overlap nor touch. A walk over the result visits each key once, even when a
 * client names many overlapping ranges.
 */
export function mergedRanges(ranges: readonly KeyRange[]): readonly KeyRange[] {
  if (ranges.length < 2) return ranges
  const sorted = ranges
    .map((range) => ({ range, from: range.start === undefined ? '' : keyText(range.start) }))
    .sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0))
  const merged: KeyRange[] = []
  /** End of the last range in `merged`; undefined when that range is open. */
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
