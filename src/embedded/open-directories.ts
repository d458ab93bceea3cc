import { realpath } from 'node:fs/promises'
import { DataDirectoryError } from '../store/leveldb/data-directory-error.js'

/** Real paths of the directories that this process has open. LevelDB's own error would blame another process. */
const open = new Set<string>()

/** @returns a function that releases the directory. @throws DataDirectoryError if this process has it open already. */
export async function claimDirectory(directory: string): Promise<() => void> {
  const path = await realpath(directory)
  if (open.has(path)) throw new DataDirectoryError(`the data directory ${directory} is open in this process already`)
  open.add(path)
  return () => open.delete(path)
}
