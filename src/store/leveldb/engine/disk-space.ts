import { randomBytes } from 'node:crypto'
import { open, statfs, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { DiskSpace } from '../../store.js'
import { sizesOf } from '../files/verify-files.js'

/** LevelDB writes a manifest, a new log and the start of a table when it opens, besides the tables made of its logs. */
const OPENING_BYTES = 4 * 1024 * 1024
/** Extra room for a compaction, without which the first compaction would fail again at once. */
const COMPACTION_BYTES = 32 * 1024 * 1024
const CHUNK = randomBytes(1024 * 1024) // Random, so that no file system can compress it.

/**
 * Rejects with the system's error when the disk has no room for the files that LevelDB writes when it opens. Finds out by writing
 * as many bytes, because `statfs` knows neither quotas nor directories that have become read-only.
 */
export async function requireRoom(directory: string): Promise<void> {
  const needed = (await logBytesOf(directory)) + OPENING_BYTES
  const { freeBytes } = await diskSpaceOf(directory)
  if (freeBytes < needed + COMPACTION_BYTES)
    throw new Error(`${directory} has ${mebibytes(freeBytes)} free; ${mebibytes(needed + COMPACTION_BYTES)} are needed`)
  const path = join(directory, 'perkv-room')
  const file = await open(path, 'w')
  try {
    await unlink(path) // Unlinked at once, so that a crash leaves no file behind.
    for (let written = 0; written < needed; written += CHUNK.length) await file.writeFile(CHUNK)
    await file.sync()
  } finally {
    await file.close()
  }
}

export async function diskSpaceOf(directory: string): Promise<DiskSpace> {
  const { bavail, blocks, bsize } = await statfs(directory)
  return { freeBytes: bavail * bsize, bytes: blocks * bsize }
}

/** Bytes of the logs, which LevelDB turns into tables when it opens. @returns 0 without a directory. */
export async function logBytesOf(directory: string): Promise<number> {
  let bytes = 0
  for (const [name, size] of await sizesOf(directory).catch(() => [])) if (name.endsWith('.log')) bytes += size
  return bytes
}

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / 1024 / 1024)} MiB`
}
