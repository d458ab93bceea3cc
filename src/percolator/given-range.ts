import { afterPrefix, type KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import { invalid } from '../errors/kv-error.js'

/** A range in the caller's own form: `prefix`, or `start` and `end`, both optional. Answers show the same form. */
export type GivenRange =
  | { readonly prefix: Uint8Array; readonly start?: undefined; readonly end?: undefined }
  | { readonly prefix?: undefined; readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined }

/** @throws KvError `invalid_argument` for an empty range, and for a prefix with bounds. */
export function keyRangeOf({ prefix, start, end }: GivenRange): KeyRange {
  if (prefix !== undefined) {
    if (start !== undefined || end !== undefined) throw invalid('prefix', 'give prefix, or start and end, not both')
    return { start: prefix, end: afterPrefix(prefix) }
  }
  if (end !== undefined && keyText(end) <= (start === undefined ? '' : keyText(start)))
    throw invalid('end', 'end must be above start: the range is empty')
  return { start, end }
}

export function isSameRange(one: KeyRange, other: KeyRange): boolean {
  return (
    keyText(one.start ?? NO_BYTES) === keyText(other.start ?? NO_BYTES) &&
    (one.end === undefined) === (other.end === undefined) &&
    keyText(one.end ?? NO_BYTES) === keyText(other.end ?? NO_BYTES)
  )
}

const NO_BYTES = new Uint8Array()
