// Whatever ends this process, the servers that it started end too, and its temporary directories go.
import { subscribe } from 'node:diagnostics_channel'
import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'

const children = new Set()
const directories = new Set()

// A child is known here from its making on, not only once it has said where it listens.
subscribe('child_process', ({ process: child }) => {
  children.add(child)
  child.once('exit', () => children.delete(child))
})

process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  // A child that dies may still make a file while the directory is being emptied: hence the retries.
  for (const directory of directories) rmSync(directory, { recursive: true, force: true, maxRetries: 10 })
})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.on(signal, () => process.exit(128 + constants.signals[signal]))

export async function temporaryDirectory() {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-scale-'))
  directories.add(directory)
  return directory
}

export async function discard(directory) {
  await rm(directory, { recursive: true, force: true })
  directories.delete(directory)
}

/** Rejects when a child ends before `started` is fulfilled, which would then never be. */
export async function orEarlyExit(started) {
  const youngest = [...children].at(-1)
  let onExit
  const exited = new Promise((_, reject) => {
    onExit = (code, signal) => reject(new Error(`the server ended with ${signal ?? code} before it listened`))
    youngest.once('exit', onExit)
  })
  try {
    return await Promise.race([started, exited])
  } finally {
    youngest.off('exit', onExit)
  }
}
