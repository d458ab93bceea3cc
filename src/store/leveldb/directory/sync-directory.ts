import { open } from 'node:fs/promises'

/** The disk failed; anything else says that a directory can't be fsynced here, as on Windows. */
const FAILURES: ReadonlySet<string | undefined> = new Set(['EIO', 'ENOSPC', 'EDQUOT'])

/** Puts the names of a directory's files on disk: an fsync of a file need not put the file's name there. */
export async function syncDirectory(directory: string): Promise<void> {
  try {
    await syncFile(directory)
  } catch (error) {
    if (FAILURES.has((error as NodeJS.ErrnoException).code)) throw error
  }
}

export async function syncFile(path: string): Promise<void> {
  const handle = await open(path, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
