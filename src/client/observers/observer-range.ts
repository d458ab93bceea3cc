import type { GivenRange } from '../../percolator/given-range.js'
import { givenRangeOf, RANGE_KINDS, type RangeOptions } from '../key-range.js'
import { optionsOf } from '../options.js'

const rangeOptions = optionsOf<RangeOptions>('the range of an observer', RANGE_KINDS)

export function observerRangeOf(given: RangeOptions): GivenRange {
  const range = rangeOptions(given)
  const { prefix, start, end } = range
  if (prefix === undefined && start === undefined && end === undefined)
    throw new TypeError("give the range of the observer: prefix, or start and end; prefix: '' is every key")
  return givenRangeOf(range)
}
