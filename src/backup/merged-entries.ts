import type { Timestamp } from '../timestamp.js'
import type { BackupEntry, RemovedRange } from './backup-format.js'

export interface MergedPart {
  /** In order of their keys; the versions of a key newest first. */
  readonly entries: AsyncIterator<BackupEntry>
  readonly removed: readonly RemovedRange[]
}

/**
 * Yields the newest entry of each key as of `at`, in order of the keys, including deletions.
 * @param parts oldest first: a version in a later one is newer.
 */
export async function* mergedEntries(
  parts: readonly MergedPart[],
  at: Timestamp,
): AsyncGenerator<BackupEntry, void, undefined> {
  let decided: Uint8Array | undefined
  for await (const { entry, part } of mergedInParts(parts)) {
    if (entry.commitTs > at || (decided !== undefined && Buffer.compare(entry.key, decided) === 0)) continue
    decided = entry.key
    const takesEntry = (range: RemovedRange): boolean => range.ts <= at && takes(range, entry)
    if (!parts.slice(part).some(({ removed }) => removed.some(takesEntry))) yield entry
  }
}

/** Yields all entries in order of their keys, the versions of a key newest first. */
export async function* mergedVersions(
  parts: readonly AsyncIterator<BackupEntry>[],
): AsyncGenerator<BackupEntry, void, undefined> {
  for await (const { entry } of mergedInParts(parts.map((entries) => ({ entries })))) yield entry
}

/** Holds one entry of each part, and ends the parts when it ends. */
async function* mergedInParts(
  parts: readonly Pick<MergedPart, 'entries'>[],
): AsyncGenerator<{ readonly entry: BackupEntry; readonly part: number }, void, undefined> {
  try {
    const heads: (BackupEntry | undefined)[] = []
    for (const { entries } of parts) heads.push(await next(entries))
    for (;;) {
      let part = -1
      let first: Uint8Array | undefined
      for (const [i, head] of heads.entries()) {
        if (head === undefined) continue
        const order = first === undefined ? -1 : Buffer.compare(head.key, first)
        if (order > 0) continue
        first = head.key
        part = i // Of equal keys the one in the latest part.
      }
      const entry = heads[part]
      const taken = parts[part]
      if (entry === undefined || taken === undefined) return
      yield { entry, part }
      heads[part] = await next(taken.entries)
    }
  } finally {
    for (const { entries } of parts) await entries.return?.()
  }
}

async function next(entries: AsyncIterator<BackupEntry>): Promise<BackupEntry | undefined> {
  const { done, value } = await entries.next()
  return done ? undefined : value
}

function takes({ start, end, ts }: RemovedRange, { key, commitTs }: BackupEntry): boolean {
  return commitTs <= ts && Buffer.compare(start, key) <= 0 && Buffer.compare(key, end) < 0
}
