import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { ENV } from '../process/server-process.js'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

interface Run {
  readonly code: unknown
  readonly stdout: string
  readonly stderr: string
}

/** Runs a program of an example to its end. */
export function runProgram(path: string, args: readonly string[]): Promise<Run> {
  return new Promise((resolve) => {
    execFile(process.execPath, [path, ...args], { env: ENV, cwd: ROOT, timeout: 200_000 }, (error, stdout, stderr) =>
      resolve({ code: error?.code ?? 0, stdout, stderr }),
    )
  })
}
