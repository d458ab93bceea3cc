// Processes and directories that go when the benchmark does, however it ends; and what Linux knows about a process.
import { fork, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { constants, platform, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const root = new URL('../..', import.meta.url).pathname
const children = new Set()
const directories = new Set()

process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  for (const directory of directories) removeDirectory(directory)
})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.once(signal, () => process.exit(128 + constants.signals[signal]))

function owned(child) {
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

/** Runs `use`, and ends the processes and removes the directories that it has made and left. */
export async function cleanedUp(use) {
  const before = new Set([...children, ...directories])
  const isNew = (one) => !before.has(one)
  try {
    return await use()
  } finally {
    await Promise.all([...children].filter(isNew).map((child) => kill({ child })))
    for (const directory of [...directories].filter(isNew)) removeDirectory(directory)
  }
}

/** Starts a Node program that prints its address in its first line. */
export async function start(args) {
  const child = owned(spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] }))
  const died = once(child, 'exit').then(() => {
    throw new Error(`${args[0]} ended before it was ready`)
  })
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), died])
  return { child, url: /http:\/\/[\d.:]+/.exec(line)[0] }
}

/** Starts any other program, its output thrown away. */
export const startProgram = (name, args) => ({ child: owned(spawn(name, args, { stdio: 'ignore' })) })

/**
 * Starts a Node program that answers calls by `answerCalls` of worker.mjs.
 * @returns its process, and `call(work, ...args)`, which rejects when the work fails or the program ends.
 */
export function startWorker(path, ...args) {
  const child = owned(fork(path, args, { cwd: root }))
  const waiting = new Map()
  let calls = 0
  let isEnded = false
  const fail = (reject) => reject(new Error(`${path} ended`))
  child.once('exit', () => {
    isEnded = true
    for (const { reject } of waiting.values()) fail(reject)
  })
  child.on('message', ({ id, result, error }) => {
    const { resolve, reject } = waiting.get(id)
    waiting.delete(id)
    if (error === undefined) resolve(result)
    else reject(new Error(error))
  })
  const call = (work, ...given) =>
    new Promise((resolve, reject) => {
      if (isEnded) return fail(reject)
      waiting.set(++calls, { resolve, reject })
      child.send({ id: calls, work, args: given })
    })
  return { child, call }
}

export const stop = (server) => end(server, 'SIGTERM')
/** What it had in memory is gone. */
export const kill = (server) => end(server, 'SIGKILL')
export const hasEnded = ({ child }) => child.exitCode !== null || child.signalCode !== null

async function end(server, signal) {
  if (hasEnded(server)) return
  server.child.kill(signal)
  await once(server.child, 'exit')
}

export const isInstalled = (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).error === undefined

export function makeDirectory() {
  const directory = mkdtempSync(join(tmpdir(), 'perkv-bench-'))
  directories.add(directory)
  return directory
}

/** A child that dies may still make a file while the directory is being emptied: hence the retries. */
export function removeDirectory(directory) {
  rmSync(directory, { recursive: true, force: true, maxRetries: 3 })
  directories.delete(directory)
}

/** @returns processor time of all threads that live, and of the main one, in µs by the scheduler; undefined without Linux. */
export function cpuMicros({ child: { pid } }) {
  if (platform() !== 'linux') return undefined
  const of = (id) => Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ')[0]) / 1000
  return { all: readdirSync(`/proc/${pid}/task`).reduce((sum, id) => sum + of(id), 0), main: of(pid) }
}

/** Of each Linux that Node runs on. */
const TICKS_PER_SECOND = 100

/** @returns processor time of a process and its children, also of those that have ended, in seconds. Linux only. */
export function familyCpuSeconds(pid) {
  let seconds = 0
  for (const name of readdirSync('/proc').filter((name) => /^\d+$/.test(name)))
    try {
      const text = readFileSync(`/proc/${name}/stat`, 'utf8')
      // Behind the name of the program, which may have any characters.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
      if (Number(name) === pid) seconds += (Number(fields[13]) + Number(fields[14])) / TICKS_PER_SECOND
      else if (Number(fields[1]) !== pid) continue
      seconds += cpuMicros({ child: { pid: name } }).all / 1e6 // Not in ticks, of which many processes use less than one.
    } catch (error) {
      if (!['ENOENT', 'ESRCH'].includes(error.code)) throw error // It has ended meanwhile.
    }
  return seconds
}

/** Linux only. */
export const rssBytes = ({ child: { pid } }) =>
  Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024
