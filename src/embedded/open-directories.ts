import { realpath } from 'node:fs/promises'
import { DataDirectoryError } from '../store/leveldb/data-directory-error.js'

/** Real paths of the directories that this process has open; LevelDB would blame another process. */
const open = new Set<string>()

/** @returns a function that gives the directory back. @throws DataDirectoryError where this process has it open. */
export async function claimDirectory(directory: string): Promise<() => void> {
  const path = await realpath(directory)
  if (open.has(path)) throw new DataDirectoryError(`the data directory ${directory} is open in this process already`)
  open.add(path)
  return () => open.delete(path)
}
