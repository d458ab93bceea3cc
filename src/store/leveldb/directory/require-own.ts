import { readdir } from 'node:fs/promises'
import { DataDirectoryError } from '../data-directory-error.js'

const OF_LEVELDB = /^(CURRENT|LOCK|LOG|LOG\.old|MANIFEST-\d+|\d+\.(log|dbtmp|ldb|sst))$/
/** What file systems, desktops and PerKV's own flag for a pid put into the root of a volume. */
const OF_A_VOLUME =
  /^(lost\+found|System Volume Information|\$RECYCLE\.BIN|aquota\.\w+|.+\.pid|\.(snapshots?|zfs|DS_Store|Trash.*|fseventsd|Spotlight-V100|nfs.*|keep|gitkeep|gitignore))$/

/**
 * Refuses a directory that has files and no database: its owner has probably named another one by mistake. Writes nothing.
 * @throws DataDirectoryError
 */
export async function requireOwn(directory: string): Promise<void> {
  const names = await readdir(directory).catch((): string[] => []) // Opening LevelDB will report the error.
  if (names.some((name) => OF_LEVELDB.test(name) && !/^(LOCK|LOG|LOG\.old)$/.test(name))) return
  const foreign = names.filter((name) => !OF_LEVELDB.test(name) && !OF_A_VOLUME.test(name)).sort()
  if (foreign.length === 0) return
  const more = foreign.length > 1 ? ` and ${foreign.length - 1} more` : ''
  throw new DataDirectoryError(
    `the data directory ${directory} holds no database, but ${JSON.stringify(foreign[0])}${more}: give a new or an empty directory`,
  )
}
