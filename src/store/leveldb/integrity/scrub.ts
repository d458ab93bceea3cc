import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { SCRUB_EVERY_MS, SCRUB_FIRST_MS, SCRUB_PAUSE_MS } from '../../../limits.js'
import { numberOf, readManifest, sizesOf, tableName, verifyTable } from '../files/verify-files.js'

/** A table that was modified more recently may still be growing. */
const UNCHANGED_MS = 60_000

/**
 * Verifies the tables of an open database one by one with pauses, soon after the start and once per day. Damage to a key hides
 * its record, which no record's checksum can show.
 * @param onDamage called once. Verification ends with it.
 */
export function startScrub(
  directory: string,
  onDamage: (message: string) => void,
  firstMs = SCRUB_FIRST_MS,
): { stop(): void } {
  const stopping = new AbortController()
  const { signal } = stopping
  const run = async (): Promise<void> => {
    for (let pauseMs = firstMs; ; pauseMs = SCRUB_EVERY_MS) {
      await delay(pauseMs, undefined, { signal, ref: false })
      const message = await scrub(
        directory,
        (): Promise<void> => delay(SCRUB_PAUSE_MS, undefined, { signal, ref: false }),
      )
      if (message !== undefined && !signal.aborted) return onDamage(message)
    }
  }
  run().catch(() => {}) // It was stopped, or the directory cannot be read, which LevelDB will report.
  return { stop: () => stopping.abort() }
}

/** @returns the first damage. @internal */
export async function scrub(directory: string, pause: () => Promise<void>): Promise<string | undefined> {
  const missing = await missingTable(directory)
  if (missing !== undefined) return missing
  for (const file of (await sizesOf(directory)).keys()) {
    if (!file.endsWith('.ldb')) continue
    try {
      const { mtimeMs } = await stat(join(directory, file))
      if (Math.abs(Date.now() - mtimeMs) < UNCHANGED_MS) continue
      const [fault] = await verifyTable(directory, file)
      if (fault !== undefined && (await isLive(directory, file))) return fault.message
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      if (code === 'EIO') return `${file}: ${message}`
      if (code === undefined) throw error // Otherwise the table was compacted away, or the next round will find more.
    }
    await pause()
  }
  return undefined
}

/** LevelDB goes on serving a deleted table that it has open, and notices any other missing table only when it reads it. */
async function missingTable(directory: string): Promise<string | undefined> {
  const manifest = await readManifest(directory, await sizesOf(directory))
  if (!('tables' in manifest)) return undefined // The start and `OwnFiles` check the MANIFEST.
  const sizes = await sizesOf(directory)
  for (const file of [...manifest.tables.keys()].map(tableName))
    if (!sizes.has(file) && (await isLive(directory, file))) return `${file}: it is missing`
  return undefined
}

/** A compaction that failed on a full disk leaves half a table, which LevelDB never reads and removes when it opens next. */
async function isLive(directory: string, file: string): Promise<boolean> {
  const manifest = await readManifest(directory, await sizesOf(directory))
  return !('tables' in manifest) || manifest.tables.has(numberOf(file))
}
