// How long the disk takes: an fsync is what a durable write waits for.
import { closeSync, fdatasyncSync, openSync, statfsSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeDirectory, removeDirectory } from '../process.mjs'

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
