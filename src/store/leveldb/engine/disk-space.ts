import { randomBytes } from 'node:crypto'
import { open, statfs, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { sizesOf } from '../files/verify-files.js'

/** Beside what its logs become, LevelDB writes a manifest, a new log and the first of a table when it is opened. */
const OPENING_BYTES = 4 * 1024 * 1024
/** What a compaction may need on top; without it the first one would fail again at once. */
const COMPACTION_BYTES = 32 * 1024 * 1024
const CHUNK = randomBytes(1024 * 1024) // Nothing that a file system can store for free.

/**
 * Rejects, with the system's error, where a directory has no room for what opening its LevelDB writes. That is found out by
 * writing as much: a file system's own figures know nothing of quotas, nor of a directory that has become read-only.
 */
export async function requireRoom(directory: string): Promise<void> {
  const needed = (await logBytesOf(directory)) + OPENING_BYTES
  const { bavail, bsize } = await statfs(directory)
  if (bavail * bsize < needed + COMPACTION_BYTES)
    throw new Error(
      `${directory} has ${mebibytes(bavail * bsize)} free; ${mebibytes(needed + COMPACTION_BYTES)} are needed`,
    )
  const path = join(directory, 'perkv-room')
  const file = await open(path, 'w')
  try {
    await unlink(path) // A crash leaves nothing behind.
    for (let written = 0; written < needed; written += CHUNK.length) await file.writeFile(CHUNK)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Opening makes tables of them. 0 where there is no directory. */
export async function logBytesOf(directory: string): Promise<number> {
  let bytes = 0
  for (const [name, size] of await sizesOf(directory).catch(() => [])) if (name.endsWith('.log')) bytes += size
  return bytes
}

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / 1024 / 1024)} MiB`
}
