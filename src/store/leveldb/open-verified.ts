import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { START_VERIFY_BYTES_MAX } from '../../limits.js'
import { DataDirectoryError } from './data-directory-error.js'
import { type Engine, openLevelDb } from './engine.js'
import { verifyFiles } from './files/verify-files.js'

/**
 * Opens a LevelDB whose files were verified before: once it is open it has dropped what it could not read. Tables that
 * are too large together to be read now are left to the scrub.
 */
export async function openVerified(directory: string): Promise<Engine> {
  await requireUnlocked(directory)
  const verified = await verifyFiles(directory, { tableBytesMax: START_VERIFY_BYTES_MAX }).catch(ifReadable)
  if (verified !== undefined && verified.faults.length > 0)
    throw damagedDirectory(
      directory,
      verified.faults.map(({ message }) => message),
    )
  return openLevelDb(directory)
}

/** One line: the first fault, how many there are, and what to do. */
export function damagedDirectory(directory: string, faults: readonly string[]): DataDirectoryError {
  const more = faults.length > 1 ? `, and ${faults.length - 1} more` : ''
  const todo = 'run perkv check and perkv repair, or restore a back-up'
  return new DataDirectoryError(`the database in ${directory} is damaged: ${faults[0]}${more}; ${todo}`)
}

/** @throws DataDirectoryError where another process has the directory open. Changes nothing. */
export async function requireUnlocked(directory: string): Promise<void> {
  if (
    !(await access(join(directory, 'CURRENT')).then(
      () => true,
      () => false,
    ))
  )
    return // It would make one.
  // LevelDB takes its lock first, and then refuses what it was told not to open.
  const db = new ClassicLevel(directory, { errorIfExists: true, createIfMissing: false })
  try {
    await db.open()
    await db.close()
  } catch (error) {
    if (isLocked(error)) throw new DataDirectoryError(`the data directory ${directory} is in use by another process`)
  }
}

export function isLocked(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause && cause.code === 'LEVEL_LOCKED'
}

/** There is no directory yet, or one that LevelDB will say more about. */
function ifReadable(error: NodeJS.ErrnoException): undefined {
  if (error.code === undefined) throw error
}
