import { readFile, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { readLog } from '../files/log-file.js'
import { requireUnlocked } from '../files/sound-directory.js'
import { sizesOf, verifyFiles } from '../files/verify-files.js'
import { batchKeys } from '../files/write-batch.js'
import { holdDirectory } from './directory-hold.js'
import { OF_A_START } from './require-own.js'

const FIRST_MANIFEST = 'MANIFEST-000001\n'
const MADE_BY_LEVELDB = /^(CURRENT|LOCK|LOG|LOG\.old|MANIFEST-\d+|\d+\.(log|dbtmp))$/

/**
 * True when the making of a database was cut short, for example by a power loss. LevelDB names its first MANIFEST in CURRENT
 * before that file is on disk. Its second MANIFEST is on disk first, and every start that served a request has made a second one.
 * So a half-made database names no second MANIFEST in CURRENT, and has no record of a client.
 */
export async function isHalfMade(directory: string): Promise<boolean> {
  const sizes = await sizesOf(directory).catch(() => new Map<string, number>())
  if (sizes.has('CURRENT') && (await readFile(join(directory, 'CURRENT'), 'latin1')) !== FIRST_MANIFEST) return false
  if (!(await isUnused(directory, sizes))) return false
  return (await verifyFiles(directory)).faults.length > 0
}

/** Lets LevelDB make a new database. Removes CURRENT first, so that an interruption leaves a half-made database again. */
export async function removeHalfMade(directory: string): Promise<void> {
  const files = [...(await sizesOf(directory)).keys()].filter((file) => MADE_BY_LEVELDB.test(file) && file !== 'LOCK')
  await rm(join(directory, 'CURRENT'), { force: true })
  for (const file of files) await rm(join(directory, file), { force: true })
}

/**
 * Removes directories that hold only a database without records of clients.
 * @param made parents first, the data directory last. @throws when a directory holds anything else.
 */
export async function removeUnused(directory: string, made: readonly string[]): Promise<void> {
  const hold = await holdDirectory(directory)
  try {
    await requireUnlocked(directory)
    const sizes = await sizesOf(directory)
    if (await isUnused(directory, sizes))
      for (const file of sizes.keys()) if (MADE_BY_LEVELDB.test(file)) await rm(join(directory, file))
    for (const path of made.toReversed()) await rmdir(path)
  } finally {
    await hold.release()
  }
}

/** True without tables and without records of clients in a log. */
async function isUnused(directory: string, sizes: ReadonlyMap<string, number>): Promise<boolean> {
  for (const file of sizes.keys()) {
    if (/\.(ldb|sst)$/.test(file)) return false
    if (!file.endsWith('.log')) continue
    const { records, after } = readLog(await readFile(join(directory, file)))
    const keys = [...records, ...after].flatMap(({ payload }) => batchKeys(payload))
    if (!keys.every((key) => OF_A_START.some((own) => own.equals(key)))) return false
  }
  return true
}
