import type { GivenRange } from '../given-range.js'
import { asOptionalBytes } from './record.js'

export function rangeFields({ prefix, start, end }: GivenRange): readonly (Uint8Array | null)[] {
  return [prefix ?? null, start ?? null, end ?? null]
}

export function rangeIn([prefix, start, end]: readonly unknown[], record: string): GivenRange {
  const before = asOptionalBytes(prefix, record)
  if (before !== undefined) return { prefix: before }
  return { start: asOptionalBytes(start, record), end: asOptionalBytes(end, record) }
}
