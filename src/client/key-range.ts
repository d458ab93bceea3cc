import type { KeyRange } from '../bytes/key-range.js'
import { afterKey, afterPrefix } from '../bytes/key-range.js'
import type { GivenRange } from '../percolator/given-range.js'
import { type As, type Bytes, type Read, readKey, toBytes } from './bytes.js'
import { BYTES, type Kinds } from './options.js'

/**
 * All keys that begin with `prefix`, or the keys from `start` up to but not including `end`. An absent bound is open.
 */
export type RangeOptions =
  | { readonly prefix?: Bytes | undefined; readonly start?: undefined; readonly end?: undefined }
  | { readonly prefix?: undefined; readonly start?: Bytes | undefined; readonly end?: Bytes | undefined }

/** The bounds of a range as the caller gave them: `prefix`, or `start` and `end`, each of which may be absent. */
export interface ReadRange<A extends As> {
  readonly prefix?: Read<A>
  readonly start?: Read<A>
  readonly end?: Read<A>
}

export const RANGE_KINDS: Kinds<RangeOptions> = { prefix: BYTES, start: BYTES, end: BYTES }

export function keyRangeOf({ prefix, start, end }: RangeOptions): KeyRange {
  if (prefix === undefined) return { start: boundOf(start, 'start'), end: boundOf(end, 'end') }
  if (start !== undefined || end !== undefined) throw new TypeError('give prefix, or start and end, not both')
  const bytes = boundOf(prefix, 'prefix')
  return { start: bytes, end: bytes && afterPrefix(bytes) }
}

/** Keeps the bounds as given, for a server that shows them again. @throws TypeError for `prefix` together with a bound. */
export function givenRangeOf({ prefix, start, end }: RangeOptions): GivenRange {
  if (prefix === undefined) return { start: givenBoundOf(start, 'start'), end: givenBoundOf(end, 'end') }
  if (start !== undefined || end !== undefined) throw new TypeError('give prefix, or start and end, not both')
  return { prefix: toBytes(prefix, 'prefix') }
}

export function readRange<A extends As>(range: GivenRange, as: A): ReadRange<A> {
  const bounds = Object.entries(range).filter((bound): bound is [string, Uint8Array] => bound[1] !== undefined)
  return Object.fromEntries(bounds.map(([name, bytes]) => [name, readKey(bytes, as)]))
}

function givenBoundOf(bound: Bytes | undefined, name: string): Uint8Array | undefined {
  return bound === undefined ? undefined : toBytes(bound, name)
}

/** An empty bound is open. */
function boundOf(bound: Bytes | undefined, name: string): Uint8Array | undefined {
  const bytes = bound === undefined ? undefined : toBytes(bound, name)
  return bytes?.length === 0 ? undefined : bytes
}

export function rangeAfter({ start, end }: KeyRange, key: Uint8Array, reverse: boolean): KeyRange {
  return reverse ? { start, end: key } : { start: afterKey(key), end }
}
