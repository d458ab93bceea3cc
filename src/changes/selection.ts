import { afterKey, afterPrefix, type KeyRange, mergedRanges } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import { invalid } from '../errors/kv-error.js'
import { FEED_RANGES_MAX } from '../limits.js'
import type { Selection } from './rules/changes-api.js'

/** @returns the selected ranges, which may overlap; undefined: every key. @throws KvError `invalid_argument` */
export function rangesOf({ prefixes = [], keys = [], start, end }: Selection): readonly KeyRange[] | undefined {
  if (prefixes.length + keys.length > FEED_RANGES_MAX)
    throw invalid('prefix', `a feed has at most ${FEED_RANGES_MAX} prefixes and keys`)
  if (keys.some((key) => key.length === 0)) throw invalid('key', 'a key must not be empty')
  const hasBound = start !== undefined || end !== undefined
  if (prefixes.length + keys.length === 0) return hasBound ? [{ start, end }] : undefined
  if (hasBound) throw invalid('start', 'a feed has prefixes and keys, or start and end')
  if (prefixes.some((prefix) => prefix.length === 0)) return undefined
  return [
    ...prefixes.map((prefix) => ({ start: prefix, end: afterPrefix(prefix) })),
    ...keys.map((key) => ({ start: key, end: afterKey(key) })),
  ]
}

export function textOf(ranges: readonly KeyRange[] | undefined): string {
  if (ranges === undefined) return ''
  const bound = (key: Uint8Array | undefined): string => (key === undefined ? '-' : `${key.length}:${keyText(key)}`)
  return mergedRanges(ranges)
    .map(({ start, end }) => `${bound(start)},${bound(end)};`)
    .join('')
}
