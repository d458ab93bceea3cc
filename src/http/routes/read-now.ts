import { aboveSafePoint } from '../../coordinator/above-safe-point.js'
import type { Timestamp } from '../../timestamp.js'
import type { AppContext } from './context.js'

/** Reads at a timestamp of its own, which the server's collections leave readable until `read` is over. */
export function readNow<T>(
  { store, pins }: Pick<AppContext, 'store' | 'pins'>,
  read: (ts: Timestamp) => Promise<T>,
): Promise<T> {
  return aboveSafePoint(async () => {
    const ts = await store.readTs()
    const release = pins.hold(ts)
    try {
      return await read(ts)
    } finally {
      release()
    }
  })
}
