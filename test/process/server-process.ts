import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'

/** The built command; `npm test` builds it first. */
export const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url))

/** Nothing of the tester's own configuration. */
export const ENV = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('PERKV_')))

export interface ServerProcess {
  readonly url: string
  readonly readyLine: string
  readonly pid: number | undefined
  /** Fulfilled when it has ended, by itself or not. */
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  signal(signal: NodeJS.Signals): void
  /** Sends the signal and waits for the end. */
  stop(signal: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

const running = new Set<ChildProcess>()

/** Starts `perkv serve` on any free port and waits for its ready line. */
export async function startProcess(
  data: string,
  flags: readonly string[] = [],
  cli = CLI,
  env: Record<string, string> = {},
): Promise<ServerProcess> {
  const child = spawn(process.execPath, [cli, 'serve', '--port', '0', '--data', data, ...flags], {
    env: { ...ENV, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  running.add(child)
  const ended = once(child, 'exit').then(([code, signal]) => {
    running.delete(child)
    return { code: code as number | null, signal: signal as NodeJS.Signals | null }
  })
  const lines = createInterface({ input: child.stdout })
  const ready = new Promise<string>((resolve) => {
    lines.on('line', (line) => {
      if (line.includes('is ready on')) resolve(line.startsWith('{') ? (JSON.parse(line) as { msg: string }).msg : line)
    })
  })
  const readyLine = await Promise.race([
    ready,
    ended.then(({ code }) => {
      throw new Error(`perkv serve ended with ${code} before it was ready`)
    }),
  ])
  const url = /http:\/\/(?:[\d.]+|\[[\da-f:]+\]):\d+/.exec(readyLine)?.[0]
  if (url === undefined) throw new Error(`no address in the ready line: ${readyLine}`)
  return {
    url,
    readyLine,
    pid: child.pid,
    ended,
    signal(signal) {
      child.kill(signal)
    },
    stop(signal) {
      child.kill(signal)
      return ended
    },
  }
}

export interface Finished {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs the command to its end. @param uid of another user; for root to choose. */
export async function runCli(
  args: readonly string[],
  env: Record<string, string> = {},
  uid?: number,
): Promise<Finished> {
  const child = spawn(process.execPath, [CLI, ...args], { env: { ...ENV, ...env }, ...(uid !== undefined && { uid }) })
  running.add(child)
  const finished = await finish(child)
  running.delete(child)
  return finished
}

/** Collects what a child prints until its end. */
export async function finish(child: ChildProcessByStdio<Writable | null, Readable, Readable>): Promise<Finished> {
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => {
    stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    stderr += chunk
  })
  const [code] = await once(child, 'close')
  return { code: code as number | null, stdout, stderr }
}

/** What a failed test left running. */
export function killAll(): void {
  for (const child of running) child.kill('SIGKILL')
}

export async function withTempDir<T>(body: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-'))
  try {
    return await body(directory)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}
