import { laterTurn } from '../../event-loop/time-slicer.js'
import type { Histogram } from '../../meters/histogram.js'
import { type Asked, families, type Measured } from './families.js'
import { measureGc, ofProcess } from './process.js'
import { linesOf, TEXT_FORMAT } from './text-format.js'

export interface Exposition {
  readonly type: string
  readonly text: string
}

/** Lines written between two looks at the clock. */
const LINES_AT_A_TIME = 100
/** A scrape takes no more of a turn than this, and the time of `LINES_AT_A_TIME` lines. Other work may take a whole slice. */
const TURN_MS_MAX = 3

/** Garbage collections since the first scrape: a server without Prometheus does not pay for the observer. */
let gc: ReadonlyMap<string, Histogram> | undefined

export async function exposition(measured: Measured, connections: number): Promise<Exposition> {
  gc ??= measureGc()
  const lines: string[] = []
  const all = [families(measured, { connections, ...(await askedOf(measured)) }), await ofProcess(gc)]
  let end = performance.now() + TURN_MS_MAX
  for (const some of all)
    for (const family of some)
      for (const line of linesOf(family)) {
        lines.push(line)
        if (lines.length % LINES_AT_A_TIME !== 0 || performance.now() < end) continue
        await laterTurn()
        end = performance.now() + TURN_MS_MAX
      }
  return { type: TEXT_FORMAT, text: `${lines.join('\n')}\n` }
}

/** Asks the system, in parallel and off the event loop's thread. */
async function askedOf({ database: { store } }: Measured): Promise<Omit<Asked, 'connections'>> {
  const known = async <T>(ask: () => Promise<T> | undefined): Promise<T | undefined> => {
    try {
      return await ask()
    } catch {
      return undefined
    }
  }
  const [storeBytes, diskSpace] = await Promise.all([
    known(() => store.files?.bytes()),
    known(() => store.files?.space()),
  ])
  return { storeBytes, diskSpace }
}
