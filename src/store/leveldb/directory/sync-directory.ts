import { open } from 'node:fs/promises'

/** Failures of the disk. Any other error means that the system cannot fsync a directory, such as Windows. */
const FAILURES: ReadonlySet<string | undefined> = new Set(['EIO', 'ENOSPC', 'EDQUOT'])

/** Puts a directory's file names on disk, which an fsync of a file need not do. */
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
