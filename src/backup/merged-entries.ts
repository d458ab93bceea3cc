import type { BackupEntry, RemovedRange } from './backup-format.js'

export interface MergedPart {
  /** In order of their keys. */
  readonly entries: AsyncIterator<BackupEntry>
  readonly removed: readonly RemovedRange[]
}

/**
 * Yields the newest entry of each key, in order of the keys, including deletions. Holds one entry of each part, and ends the
 * parts when it ends.
 * @param parts oldest first: a version in a later one is newer.
 */
export async function* mergedEntries(parts: readonly MergedPart[]): AsyncGenerator<BackupEntry, void, undefined> {
  try {
    const heads: (BackupEntry | undefined)[] = []
    for (const { entries } of parts) heads.push(await next(entries))
    for (;;) {
      let newest = -1
      let first: Uint8Array | undefined
      for (const [i, head] of heads.entries()) {
        if (head === undefined) continue
        const order = first === undefined ? -1 : Buffer.compare(head.key, first)
        if (order > 0) continue
        first = head.key
        newest = i // Of equal keys the one in the latest part.
      }
      const entry = heads[newest]
      if (entry === undefined) return
      const isRemoved = parts.slice(newest).some(({ removed }) => removed.some((range) => takes(range, entry)))
      if (!isRemoved) yield entry
      for (const [i, head] of heads.entries()) {
        const { entries } = parts[i] as MergedPart
        if (head !== undefined && Buffer.compare(head.key, entry.key) === 0) heads[i] = await next(entries)
      }
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
