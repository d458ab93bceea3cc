// What the benchmarks share: processes and directories that go when the benchmark does, however it ends; and medians.
import { fork, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const root = new URL('..', import.meta.url).pathname
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

/** Starts a node program that prints its address in its first line. */
export async function start(args) {
  const child = owned(spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] }))
  const died = once(child, 'exit').then(() => {
    throw new Error(`${args[0]} ended before it was ready`)
  })
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), died])
  return { child, url: /http:\/\/[\d.:]+/.exec(line)[0] }
}

/** Starts a node program that talks over IPC. */
export const startWorker = (path, args) => ({ child: owned(fork(path, args, { cwd: root })) })

/** Starts any other program, its output thrown away. */
export const startProgram = (name, args) => ({ child: owned(spawn(name, args, { stdio: 'ignore' })) })

export const stop = (server) => end(server, 'SIGTERM')
/** What it had in memory is gone. */
export const kill = (server) => end(server, 'SIGKILL')

async function end({ child }, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
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

export const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]
