import { readdir } from 'node:fs/promises'
import { DataDirectoryError } from '../data-directory-error.js'
import { JOURNAL } from '../files/journal-name.js'
import { hasOnlyOthers } from '../files/own-records.js'
import { metaKey } from '../records/keyspace.js'

const OF_LEVELDB = /^(CURRENT|LOCK|LOG|LOG\.old|MANIFEST-\d+|\d+\.(log|dbtmp|ldb|sst))$/
/** Entries that file systems, desktops and PerKV's pid flag leave in the root of a volume. */
const OF_A_VOLUME =
  /^(lost\+found|System Volume Information|\$RECYCLE\.BIN|aquota\.\w+|.+\.pid|\.(snapshots?|zfs|DS_Store|Trash.*|fseventsd|Spotlight-V100|nfs.*|keep|gitkeep|gitignore))$/

/** Files that RocksDB has and LevelDB has not. */
const OF_ROCKSDB = /^(IDENTITY|OPTIONS-\d+)$/
export const OF_A_START = ['format', 'oracle/mark', 'cursor/secret'].map(metaKey)

/**
 * Refuses a directory with files but no database, or with the database of another program, which was probably named by mistake.
 * Changes nothing.
 * @throws DataDirectoryError
 */
export async function requireOwn(directory: string): Promise<void> {
  const names = await readdir(directory).catch((): string[] => []) // Opening LevelDB will report the error.
  if (names.some((name) => OF_LEVELDB.test(name) && !/^(LOCK|LOG|LOG\.old)$/.test(name))) {
    if (names.includes(JOURNAL)) return // A repair was interrupted.
    if (names.some((name) => OF_ROCKSDB.test(name)))
      throw new DataDirectoryError(`the data directory ${directory} is a RocksDB, and not PerKV's`)
    const isForeign = await hasOnlyOthers(directory, OF_A_START).catch(() => false) // Opening LevelDB will report the error.
    if (isForeign) throw new DataDirectoryError(`the data directory ${directory} is a LevelDB, but not PerKV's`)
    return
  }
  const foreign = names.filter((name) => !OF_LEVELDB.test(name) && !OF_A_VOLUME.test(name)).sort()
  if (foreign.length === 0) return
  const more = foreign.length > 1 ? ` and ${foreign.length - 1} more` : ''
  throw new DataDirectoryError(
    `the data directory ${directory} holds no database, but ${JSON.stringify(foreign[0])}${more}: give a new or an empty directory`,
  )
}
