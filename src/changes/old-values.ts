import { keyText } from '../bytes/key-text.js'
import type { Change, ExpiryChange, KeyChange } from '../percolator/change.js'
import type { ChangeLog } from '../store/change-log.js'
import type { Store } from '../store/store.js'
import { changeBytes, feedChangeOf } from './committed-txn.js'
import type { FeedChange } from './rules/changes-api.js'

/** Values may be long, so the first read takes few changes. */
const FIRST_CHANGES = 16
const CHANGES = 256
/** While values are no longer than this on average, the next read takes `CHANGES` changes. */
const SHORT_BYTES = 4096

export interface WithOld {
  readonly source: Change
  readonly change: FeedChange
  readonly bytes: number
}

interface OldSources {
  readonly store: Pick<Store, 'batchGet'>
  readonly log: ChangeLog
}

/**
 * Adds the version before each change: one read per commit_ts. A read below a resolved_ts meets no lock. The version before an
 * expiry is the one that expires.
 * @returns batches of changes whose values were read together.
 */
export async function* withOldValues(
  sources: OldSources,
  changes: readonly Change[],
  keysOnly: boolean,
): AsyncGenerator<WithOld[], void> {
  let bytes = 0
  for (let from = 0; from < changes.length; ) {
    const count = from > 0 && bytes <= from * SHORT_BYTES ? CHANGES : FIRST_CHANGES
    const some = changes.slice(from, from + count)
    const portion = await read(sources, some, keysOnly)
    for (const each of portion) bytes += each.bytes
    from += some.length
    yield portion
  }
}

async function read(sources: OldSources, changes: readonly Change[], keysOnly: boolean): Promise<WithOld[]> {
  const portions: Promise<WithOld[]>[] = []
  for (let from = 0; from < changes.length; ) {
    const ts = (changes[from] as Change).commitTs
    let to = from + 1
    while (changes[to]?.commitTs === ts) to++
    portions.push(readAt(sources, changes.slice(from, to), keysOnly))
    from = to
  }
  return (await Promise.all(portions)).flat()
}

/** @param changes all of one commit_ts. */
async function readAt(sources: OldSources, changes: readonly Change[], keysOnly: boolean): Promise<WithOld[]> {
  const keys = changes.flatMap(({ type, key }) => (type === 'delete_range' ? [] : [key]))
  const ts = (changes[0] as Change).commitTs - 1
  const { pairs } = keys.length === 0 ? { pairs: [] } : await sources.store.batchGet({ keys, ts })
  const found = new Map(pairs.map((pair) => [keyText(pair.key), pair]))
  const unseen = await readUnseen(sources, changes)
  return changes.map((source) => {
    const change = feedChangeOf(source, keysOnly)
    if (source.type === 'delete_range') return { source, change, bytes: changeBytes(source) }
    const pair = unseen.get(source) ?? found.get(keyText(source.key))
    if (pair?.value === undefined) return { source, change: { ...change, old: null }, bytes: changeBytes(source) }
    const { value, commitTs, expireTs } = pair
    const old = expireTs === undefined ? { value, commitTs } : { value, commitTs, expireTs }
    return { source, change: { ...change, old }, bytes: changeBytes(source) + value.length }
  })
}

/** Reads the versions that had expired when they were committed, which no ordinary read sees. */
async function readUnseen(sources: OldSources, changes: readonly Change[]): Promise<Map<Change, KeyChange>> {
  const found = new Map<Change, KeyChange>()
  const unseen = changes.filter((change): change is ExpiryChange => {
    return change.type === 'expire' && change.version.commitTs === change.commitTs
  })
  if (unseen.length === 0) return found
  const byKey = new Map(unseen.map((change) => [keyText(change.key), change]))
  const puts = unseen.map(({ key, version }): KeyChange => ({ type: 'put', key, ...version }))
  for await (const page of sources.log.withValues(puts))
    for (const put of page) {
      const source = byKey.get(keyText(put.key))
      if (source !== undefined && put.type === 'put') found.set(source, put)
    }
  return found
}
