import type { KeyChange } from './change.js'
import type { Mutation } from './row.js'
import { isData } from './write.js'

/** The changes that a write commits. Flags on records that stand are no commits. */
export function* committedChanges(mutations: readonly Mutation[]): Generator<KeyChange> {
  for (const mutation of mutations) {
    if (mutation.type !== 'put-write' || mutation.isFlag || !isData(mutation.write)) continue
    const { type, startTs, commitTs, shortValue: value } = mutation.write
    yield { type: type === 'put' ? 'put' : 'delete', key: mutation.key, commitTs, startTs, value }
  }
}
