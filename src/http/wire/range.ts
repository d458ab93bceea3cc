import type { KeyRange } from '../../bytes/key-range.js'
import { afterPrefix } from '../../bytes/key-range.js'
import { invalid } from '../../errors/kv-error.js'
import type { GivenRange } from '../../percolator/given-range.js'

export function rangeOf(
  given: KeyRange & { readonly prefix?: Uint8Array | undefined },
  field: string,
): { start: Uint8Array | undefined; end: Uint8Array | undefined } {
  const { prefix, start, end } = given
  if (prefix === undefined) return { start, end }
  if (start !== undefined || end !== undefined) throw invalid(field, 'give prefix, or start and end, not both')
  return { start: prefix, end: afterPrefix(prefix) }
}

/** Keeps the bounds as given, for answers that show them again. @throws the errors of `rangeOf` */
export function givenRangeOf(
  given: KeyRange & { readonly prefix?: Uint8Array | undefined },
  field: string,
): GivenRange {
  rangeOf(given, field)
  const { prefix, start, end } = given
  return prefix === undefined ? { start, end } : { prefix }
}
