// What Linux knows about a process.
import { readFileSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** USER_HZ is 100 on every Linux that Node runs on. */
const MICROS_A_TICK = 10_000

/** User and system time of all threads, ended ones too, and of the main thread, in microseconds. */
export function cpuMicros({ child: { pid } }) {
  return {
    all: ticks(`/proc/${pid}/stat`) * MICROS_A_TICK,
    main: ticks(`/proc/${pid}/task/${pid}/stat`) * MICROS_A_TICK,
  }
}

function ticks(path) {
  const text = readFileSync(path, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ') // The name before it may hold anything.
  return Number(fields[11]) + Number(fields[12]) // utime and stime: 14 and 15 in proc(5), which counts pid and name too.
}

export function rssBytes({ child: { pid } }) {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024
}

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
