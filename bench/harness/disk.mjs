import { closeSync, fdatasyncSync, openSync, statfsSync, writeSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeDirectory, removeDirectory } from './process.mjs'

const BLOCK = Buffer.alloc(4096)
const NAMES = { 61267: 'ext4', 1481003842: 'xfs', 2435016766: 'btrfs', 2035054128: 'overlay', 16914836: 'tmpfs' }

/** Of the directory for temporary files. */
export function fileSystem() {
  const { type } = statfsSync(tmpdir())
  return NAMES[type] ?? `a file system of type 0x${type.toString(16)}`
}

/** Appends 4 KiB and waits for the disk, `times` times, as the log of a database does. @returns ms each took. */
export function timeFsyncs(times) {
  const directory = makeDirectory()
  const file = openSync(join(directory, 'log'), 'a')
  const durations = Array.from({ length: times }, () => {
    const begin = performance.now()
    writeSync(file, BLOCK)
    fdatasyncSync(file)
    return performance.now() - begin
  })
  closeSync(file)
  removeDirectory(directory)
  return durations
}

export async function diskBytes(directory) {
  const entries = await readdir(directory, { withFileTypes: true, recursive: true })
  const sizes = entries.filter((entry) => entry.isFile()).map((entry) => sizeOf(join(entry.parentPath, entry.name)))
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

/** A compaction may have removed the file since it was listed. */
const sizeOf = (path) =>
  stat(path).then(
    ({ size }) => size,
    () => 0,
  )

/** Waits until LevelDB has compacted what was loaded: until its files have been the same for a second. */
export async function settle({ data }) {
  const files = async () => (await readdir(data)).toSorted().join()
  for (let before = '', now = await files(); now !== before; now = await files()) {
    before = now
    await sleep(1000)
  }
}
