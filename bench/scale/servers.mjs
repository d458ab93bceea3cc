import { once } from 'node:events'
import { start, stop } from '../process.mjs'
import { discard, orEarlyExit, temporaryDirectory } from './cleanup.mjs'

export const startPerkv = (data) => orEarlyExit(start(['dist/cli.js', 'serve', '--port', '0', '--data', data]))
export const startBare = () => orEarlyExit(start(['bench/bare.mjs']))

const isRunning = ({ child }) => child.exitCode === null && child.signalCode === null

export async function stopServer(server) {
  if (isRunning(server)) await stop(server)
}

/** `kill -9`: what it had in memory is gone. */
export async function killServer(server) {
  if (!isRunning(server)) return
  server.child.kill('SIGKILL')
  await once(server.child, 'exit')
}

/** Runs `use` with a PerKV on the directory. */
export async function withPerkvOn(data, use) {
  const server = await startPerkv(data)
  try {
    return await use(server)
  } finally {
    await stopServer(server)
  }
}

/** Runs `use` with a PerKV of its own, empty. */
export async function withPerkv(use) {
  const data = await temporaryDirectory()
  try {
    return await withPerkvOn(data, (server) => use(server, data))
  } finally {
    await discard(data)
  }
}
