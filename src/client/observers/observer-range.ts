import type { GivenRange } from '../../percolator/given-range.js'
import { isName, NAME } from '../../percolator/name.js'
import { type Bytes, toBytes } from '../bytes.js'
import { RANGE_KINDS, type RangeOptions } from '../key-range.js'
import { optionsOf } from '../options.js'

const rangeOptions = optionsOf<RangeOptions>('the range of an observer', RANGE_KINDS)

/** @throws TypeError for `prefix` together with a bound, and for no range at all: `prefix: ''` is every key. */
export function observerRangeOf(given: RangeOptions): GivenRange {
  const { prefix, start, end } = rangeOptions(given)
  if (prefix === undefined && start === undefined && end === undefined)
    throw new TypeError("give the range of the observer: prefix, or start and end; prefix: '' is every key")
  if (prefix === undefined) return { start: boundOf(start, 'start'), end: boundOf(end, 'end') }
  if (start !== undefined || end !== undefined) throw new TypeError('give prefix, or start and end, not both')
  return { prefix: toBytes(prefix, 'prefix') }
}

function boundOf(bound: Bytes | undefined, name: string): Uint8Array | undefined {
  return bound === undefined ? undefined : toBytes(bound, name)
}

/** @throws TypeError. The names `.` and `..` are refused, because URLs cannot carry them. */
export function requireObserverName(name: string): void {
  if (typeof name === 'string' && isName(name) && name !== '.' && name !== '..') return
  throw new TypeError(`the name of an observer must ${NAME.rule}`)
}
