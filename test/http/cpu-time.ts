import { openSync, readSync } from 'node:fs'

/** What this thread has worked, in milliseconds, however busy the machine is with others; the time of the clock where Linux is not there to say. */
const cpuMs = clockOfThread()

function clockOfThread(): () => number {
  const bytes = Buffer.alloc(64)
  let file: number
  try {
    file = openSync('/proc/thread-self/schedstat', 'r')
  } catch {
    return () => performance.now()
  }
  return () => {
    readSync(file, bytes, 0, bytes.length, 0)
    return Number(bytes.toString('latin1', 0, bytes.indexOf(' '))) / 1e6
  }
}

export interface Cost {
  /** The longest turn of the event loop. */
  readonly turnMs: number
  readonly totalMs: number
}

/** What this thread works until `body` is done. */
export async function costOf(body: () => Promise<unknown>): Promise<Cost> {
  let turnMs = 0
  let isOver = false
  const begin = cpuMs()
  let before = begin
  const look = (): void => {
    const now = cpuMs()
    turnMs = Math.max(turnMs, now - before)
    before = now
    if (!isOver) setImmediate(look)
  }
  setImmediate(look)
  await body()
  await new Promise((next) => setImmediate(next))
  isOver = true
  look()
  return { turnMs, totalMs: before - begin }
}
