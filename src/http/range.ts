import type { KeyRange } from '../percolator/api.js'
import { invalid } from '../percolator/errors.js'

/** `prefix`, or `start` and `end`. @throws KvError `invalid_argument` for both. @param field where to point then. */
export function rangeOf(
  given: KeyRange & { readonly prefix?: Uint8Array | undefined },
  field: string,
): { start: Uint8Array | undefined; end: Uint8Array | undefined } {
  const { prefix, start, end } = given
  if (prefix === undefined) return { start, end }
  if (start !== undefined || end !== undefined) throw invalid(field, 'give prefix, or start and end, not both')
  return { start: prefix, end: afterPrefix(prefix) }
}

/** The first key after all that start with `prefix`; undefined when there is none (all bytes 0xFF). */
function afterPrefix(prefix: Uint8Array): Uint8Array | undefined {
  let length = prefix.length
  while (length > 0 && prefix[length - 1] === 0xff) length--
  if (length === 0) return undefined
  const end = Buffer.from(prefix.subarray(0, length))
  end[length - 1] = (end[length - 1] as number) + 1
  return end
}

/** The first key after `key`. */
export function afterKey(key: Uint8Array): Uint8Array {
  return Buffer.concat([key, Buffer.of(0)])
}
