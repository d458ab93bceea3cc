import { isReserved } from '../bytes/reserved-keys.js'
import type { KeyChange } from './change.js'
import type { Mutation } from './row.js'
import { isData } from './write.js'

/**
 * @returns the change that `mutations[i]` commits; undefined when it commits none, for example when it only flags a record. A
 *   commit in one phase puts a long value right behind its record, where this finds it.
 */
export function committedChange(mutations: readonly Mutation[], i: number): KeyChange | undefined {
  const mutation = mutations[i]
  if (mutation?.type !== 'put-write' || mutation.isFlag || !isData(mutation.write)) return undefined
  const { type, startTs, commitTs, shortValue, expireTs } = mutation.write
  const { key } = mutation
  if (isReserved(key)) return undefined // Feeds do not show the server's own rows.
  if (type === 'delete') return { type, key, commitTs, startTs }
  const next = mutations[i + 1]
  const isLong = shortValue === undefined && next?.type === 'put-value' && next.key === key
  const value = isLong ? next.value : shortValue
  return expireTs === 0
    ? { type: 'put', key, commitTs, startTs, value }
    : { type: 'put', key, commitTs, startTs, value, expireTs }
}
