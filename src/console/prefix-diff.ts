import { afterPrefix } from '../bytes/key-range.js'
import type { LockInfo, Pair } from './answers.js'
import { type Change, diffOf, type KeyDiff, type Previews, previewsOf } from './key-diff.js'
import { readKeys, readSlice, type Slice } from './read-past-locks.js'
import type { Server } from './server.js'
import { charactersOf, idOf, jsonBytes, type WireBytes } from './wire-bytes.js'

export interface DiffRequest {
  readonly prefix: WireBytes
  readonly from: number
  readonly to: number
}

export interface DiffSlice extends KeyDiff {
  readonly locks: readonly LockInfo[]
}

/** Keys per request: neither the server nor the page is busy with them for long. */
const SLICE_KEYS = 1000
const CHANGES_PER_PAGE = 100
/** A page ends here where little has changed, and the next one goes on. */
const KEYS_PER_PAGE = 200_000

/** Reads the changes below a prefix, slice by slice. Looking changes nothing. @throws Refused for a time before the safe point. */
export async function* diffSlicesOf(
  server: Server,
  { prefix, from, to }: DiffRequest,
  signal: AbortSignal,
  start: Uint8Array = jsonBytes(prefix),
): AsyncGenerator<DiffSlice, void, undefined> {
  const end = afterPrefix(jsonBytes(prefix))
  for (let at: Uint8Array | undefined = start; at !== undefined; ) {
    const asked = { start: at, end, limit: SLICE_KEYS, keyOnly: true }
    const [before, after]: [Slice, Slice] = await Promise.all([
      readSlice(server, { ...asked, ts: from }, signal),
      readSlice(server, { ...asked, ts: to }, signal),
    ])
    const merged = diffOf(before, after)
    yield { ...merged, locks: after.locks }
    at = merged.next
  }
}

/** One page of changes. @param onCompared is told the number of keys compared so far. */
export async function loadDiffPage(
  server: Server,
  asked: DiffRequest,
  start: Uint8Array | undefined,
  onCompared: (compared: number) => void,
  signal: AbortSignal,
): Promise<DiffSlice> {
  const changes: Change[] = []
  const locks: LockInfo[] = []
  let compared = 0
  for await (const slice of diffSlicesOf(server, asked, signal, start)) {
    changes.push(...slice.changes)
    locks.push(...slice.locks)
    compared += slice.compared
    onCompared(compared)
    const cut = changes[CHANGES_PER_PAGE]
    if (cut !== undefined)
      return { changes: changes.slice(0, CHANGES_PER_PAGE), next: jsonBytes(cut.key), compared, locks }
    if (changes.length === CHANGES_PER_PAGE || compared >= KEYS_PER_PAGE)
      return { changes, next: slice.next, compared, locks }
  }
  return { changes, next: undefined, compared, locks }
}

const VALUES_AT_ONCE = 10
/** Values of a page are read for their previews up to this many characters. */
const VALUES_BUDGET = 8 * 1024 * 1024

/** Reads both values of each change, a few at a time, and keeps what is seen of them. Stops when they are long. */
export async function loadPreviews(
  server: Server,
  { from, to }: DiffRequest,
  changes: readonly Change[],
  onPreviews: (previews: ReadonlyMap<string, Previews>) => void,
  signal: AbortSignal,
): Promise<void> {
  let budget = VALUES_BUDGET
  for (let i = 0; i < changes.length && budget > 0; i += VALUES_AT_ONCE) {
    const some = changes.slice(i, i + VALUES_AT_ONCE)
    const keysOf = (side: 'before' | 'after') =>
      some.flatMap((change) => (change[side] === undefined ? [] : [change.key]))
    const [olds, news] = await Promise.all([
      readKeys(server, keysOf('before'), from, signal),
      readKeys(server, keysOf('after'), to, signal),
    ])
    for (const { value = '' } of [...olds, ...news]) budget -= charactersOf(value)
    const valueIn = (pairs: readonly Pair[]) => new Map(pairs.map(({ key, value = '' }) => [idOf(key), value]))
    const [oldOf, newOf] = [valueIn(olds), valueIn(news)]
    onPreviews(
      new Map(some.map(({ key }) => [idOf(key), previewsOf(oldOf.get(idOf(key)) ?? '', newOf.get(idOf(key)) ?? '')])),
    )
  }
}
