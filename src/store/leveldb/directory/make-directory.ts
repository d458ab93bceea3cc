import { mkdir, rmdir, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { DataDirectoryError } from '../data-directory-error.js'
import { removeUnused } from './never-used.js'
import { syncDirectory } from './sync-directory.js'

export type MadeDirectories = readonly string[]

/**
 * Makes a missing directory and its missing parents. Node's own `recursive` never ends in `/proc`, where making a directory
 * fails as if its parent were missing.
 * @throws DataDirectoryError
 */
export async function makeDirectory(directory: string): Promise<MadeDirectories> {
  const made: string[] = []
  try {
    await make(resolve(directory), made)
    return made
  } catch (error) {
    for (const path of made.toReversed()) await rmdir(path).catch(() => {})
    const { message } = error as Error
    throw new DataDirectoryError(`the data directory ${directory} cannot be made: ${message}`, { cause: error })
  }
}

export async function unmakeDirectory(directory: string, made: MadeDirectories): Promise<void> {
  if (made.length > 0) await removeUnused(directory, made).catch(() => {})
}

async function make(path: string, made: string[]): Promise<void> {
  if (await isDirectory(path)) return
  const above = dirname(path)
  if (above !== path) await make(above, made)
  await mkdir(path)
  made.push(path)
  await syncDirectory(above)
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
}
