import { closeSync, openSync } from 'node:fs'
import { devNull } from 'node:os'
import type { Logger } from '../logger.js'

const LOOK_EVERY_MS = 1000
/** The shortage is over when this many are free at once: at the limit one is free now and then. */
const FREE_AGAIN = 8

/**
 * Logs when the process, or the machine, has no file descriptors left, and when it has again. libuv closes connections without a
 * descriptor silently, so this looks by itself.
 * @returns a function that stops it.
 */
export function watchDescriptors(log: Logger): () => void {
  let sinceMs: number | undefined
  const look = (): void => {
    const missing = missingOf(sinceMs === undefined ? 1 : FREE_AGAIN)
    if (missing !== undefined && sinceMs === undefined) {
      sinceMs = performance.now()
      log.error(`no file descriptors are left (${missing}): new connections are closed until there are (ulimit -n)`)
    } else if (missing === undefined && sinceMs !== undefined) {
      log.info(`there are file descriptors again, after ${Math.round((performance.now() - sinceMs) / 1000)} s`)
      sinceMs = undefined
    }
  }
  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  return () => clearInterval(timer)
}

/** @returns the code of the system's error when so many cannot be opened at once. */
function missingOf(count: number): string | undefined {
  const opened: number[] = []
  try {
    while (opened.length < count) opened.push(openSync(devNull, 'r'))
    return undefined
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code === 'EMFILE' || code === 'ENFILE' ? code : undefined
  } finally {
    for (const descriptor of opened) closeSync(descriptor)
  }
}
