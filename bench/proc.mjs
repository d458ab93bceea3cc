// What Linux knows about a process.
import { readdirSync, readFileSync } from 'node:fs'
import { platform } from 'node:os'

/** USER_HZ is 100 on every Linux that Node runs on. */
const MICROS_PER_TICK = 10_000

/** @returns user and system time of all threads, ended ones too, and of the main thread, in microseconds; undefined where
 * there is no Linux. */
export function cpuMicros({ child: { pid } }) {
  if (platform() !== 'linux') return undefined
  return {
    all: ticks(`/proc/${pid}/stat`) * MICROS_PER_TICK,
    main: ticks(`/proc/${pid}/task/${pid}/stat`) * MICROS_PER_TICK,
  }
}

/** @returns processor time of all threads that live, and of the main one, in microseconds: by the scheduler, so that blocks of
 * some ms can be told apart. Linux only. */
export function scheduledMicros({ child: { pid } }) {
  const of = (id) => Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ')[0]) / 1000
  return { all: readdirSync(`/proc/${pid}/task`).reduce((sum, id) => sum + of(id), 0), main: of(pid) }
}

function ticks(path) {
  const text = readFileSync(path, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ') // The name before it may hold anything.
  return Number(fields[11]) + Number(fields[12]) // utime and stime: 14 and 15 in proc(5), which counts pid and name too.
}

export function rssBytes({ child: { pid } }) {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024
}
