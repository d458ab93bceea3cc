// What the benchmarks share: servers in processes of their own, and medians.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

const root = new URL('..', import.meta.url).pathname

/** Starts a node program that prints its address in its first line. */
export async function start(args) {
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = await once(createInterface({ input: child.stdout }), 'line')
  return { child, url: /http:\/\/[\d.:]+/.exec(line)[0] }
}

export async function stop({ child }) {
  child.kill('SIGTERM')
  await once(child, 'exit')
}

export const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]
