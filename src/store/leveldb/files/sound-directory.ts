import { access, open } from 'node:fs/promises'
import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { DataDirectoryError } from '../data-directory-error.js'
import { readManifest, sizesOf, verifyFiles } from './verify-files.js'

/**
 * Verifies a LevelDB before it is opened, because opening drops unreadable records. Changes nothing.
 * @param tableBytesMax tables larger than this together are not read. @throws DataDirectoryError
 */
export async function requireSoundDirectory(directory: string, tableBytesMax: number): Promise<void> {
  if ((await faultsOf(directory, tableBytesMax).catch(() => ['unreadable'])).length === 0) return
  await requireUnlocked(directory) // Files change while another process has the database open.
  const faults = await faultsOf(directory, tableBytesMax)
  if (faults.length > 0) throw damagedDirectory(directory, faults)
}

async function faultsOf(directory: string, tableBytesMax: number): Promise<string[]> {
  try {
    return (await verifyFiles(directory, { tableBytesMax })).faults.map(({ message }) => message)
  } catch (error) {
    // The directory does not exist yet, or opening it will report the error.
    if ((error as NodeJS.ErrnoException).syscall === 'scandir') return []
    throw error
  }
}

export function damagedDirectory(directory: string, faults: readonly string[]): DataDirectoryError {
  const more = faults.length > 1 ? `, and ${faults.length - 1} more` : ''
  const todo = 'run perkv check and perkv repair, or restore a back-up'
  return new DataDirectoryError(`the database in ${directory} is damaged: ${faults[0]}${more}; ${todo}`)
}

/** @throws DataDirectoryError when another process has the directory open. Changes nothing. */
export async function requireUnlocked(directory: string): Promise<void> {
  if (
    !(await access(join(directory, 'CURRENT')).then(
      () => true,
      () => false,
    ))
  )
    return // Opening would make a LOCK file.
  // LevelDB takes its lock first and then refuses to open the database, because of `errorIfExists`.
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

/** Cuts off a half-written record that power loss left at the end of a MANIFEST. LevelDB refuses some of these. */
export async function dropTornEdit(directory: string): Promise<void> {
  const torn = await tornManifest(directory)
  if (torn === undefined) return
  // A process that opens the database after this moment begins a new MANIFEST and does not read this one.
  await requireUnlocked(directory)
  const still = await tornManifest(directory)
  if (still?.file !== torn.file || still.tornAt !== torn.tornAt) return
  const handle = await open(join(directory, torn.file), 'r+')
  try {
    await handle.truncate(torn.tornAt)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

async function tornManifest(directory: string): Promise<{ file: string; tornAt: number } | undefined> {
  const sizes = await sizesOf(directory).catch(() => new Map<string, number>()) // Opening will report the error.
  const manifest = sizes.has('CURRENT') ? await readManifest(directory, sizes) : undefined
  if (manifest === undefined || !('tables' in manifest) || manifest.tornAt === undefined) return undefined
  return { file: manifest.file, tornAt: manifest.tornAt }
}
