import { isReserved } from '../bytes/reserved-keys.js'
import type { KeyChange } from './change.js'
import type { Mutation } from './row.js'
import { isData } from './write.js'

/**
 * The change that `mutations[i]` commits; undefined when it commits none, as a flag on a record that stands. A long value is
 * found where a commit in one phase puts it: behind its record.
 */
export function committedChange(mutations: readonly Mutation[], i: number): KeyChange | undefined {
  const mutation = mutations[i]
  if (mutation?.type !== 'put-write' || mutation.isFlag || !isData(mutation.write)) return undefined
  const { type, startTs, commitTs, shortValue, expireTs } = mutation.write
  const { key } = mutation
  if (isReserved(key)) return undefined // No feed tells of the server's own rows.
  if (type === 'delete') return { type, key, commitTs, startTs }
  const next = mutations[i + 1]
  const isLong = shortValue === undefined && next?.type === 'put-value' && next.key === key
  const value = isLong ? next.value : shortValue
  return expireTs === 0
    ? { type: 'put', key, commitTs, startTs, value }
    : { type: 'put', key, commitTs, startTs, value, expireTs }
}
