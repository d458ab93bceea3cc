import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

export async function diskBytes(directory) {
  const entries = await readdir(directory, { withFileTypes: true, recursive: true })
  const sizes = entries.filter((entry) => entry.isFile()).map((entry) => sizeOf(join(entry.path, entry.name)))
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

/** A compaction may have removed the file since it was listed. */
const sizeOf = (path) =>
  stat(path).then(
    ({ size }) => size,
    () => 0,
  )
