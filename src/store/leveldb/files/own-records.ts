import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { firstSequence, readBatches } from './batch-log.js'
import { tableHas } from './table-file.js'
import { hasLog, isLiveLog, readManifest, sizesOf, tableName } from './verify-files.js'
import { batchKeys } from './write-batch.js'

/**
 * True when a LevelDB holds records, but none of these. Changes nothing, unlike opening a LevelDB or asking for its lock.
 * @returns false also when files are damaged or change in the meantime.
 */
export async function hasOnlyOthers(directory: string, keys: readonly Buffer[]): Promise<boolean> {
  // Names come first: records of a file that is gone when it is read may have moved to a file that the list lacks.
  const sizes = await sizesOf(directory)
  if (!sizes.has('CURRENT')) return false
  const live = await readManifest(directory, sizes)
  if ('message' in live) return false
  if (live.comparator !== undefined && live.comparator !== COMPARATOR) return true
  if (!hasLog(live, sizes)) return false
  for (const [number, { smallest, largest }] of live.tables) {
    const inside = keys.filter((key) => Buffer.compare(key, smallest) >= 0 && Buffer.compare(key, largest) <= 0)
    if (inside.length === 0) continue
    const table = await readFile(join(directory, tableName(number)))
    if (inside.some((key) => tableHas(table, key) !== false)) return false
  }
  let isEmpty = live.tables.size === 0
  let next = firstSequence(live.lastSequence)
  for (const file of [...sizes.keys()].filter((file) => isLiveLog(file, live))) {
    const log = readBatches(await readFile(join(directory, file)), next)
    if (log.fault !== undefined) return false
    next = log.next
    for (const { payload } of log.records) {
      const written = batchKeys(payload)
      if (written.some((key) => keys.some((own) => own.equals(key)))) return false
      isEmpty &&= written.length === 0
    }
  }
  return !isEmpty
}

const COMPARATOR = 'leveldb.BytewiseComparator'
