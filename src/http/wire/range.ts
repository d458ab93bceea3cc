import type { KeyRange } from '../../bytes/key-range.js'
import { afterPrefix } from '../../bytes/key-range.js'
import { invalid } from '../../errors/kv-error.js'

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
