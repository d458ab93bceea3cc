import { WRITE_AHEAD_MS_MAX } from '../../limits.js'
import type { Store } from '../../store/store.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../../timestamp.js'

/** @returns for a refused timestamp the text that validator.ts puts after the name of a field. */
export type WrittenTimestamps = (which: 'every' | 'every_but_max', given: Timestamp) => string | undefined

/**
 * The schema keyword `written` bounds timestamps at which a record or lock may be written: they must not be far above the clock.
 * No transaction could write a key that has a record in the future until the clock reaches it.
 */
export function writtenTimestamps(store: Pick<Store, 'now'>): WrittenTimestamps {
  const seconds = WRITE_AHEAD_MS_MAX / 1000
  /** The bound when the clock was last read. It stays valid, because the clock never goes back. */
  let allowed: Timestamp = 0
  return (which, given) => {
    if (given <= allowed) return undefined
    allowed = store.now() + timestampFromMs(WRITE_AHEAD_MS_MAX)
    if (given <= allowed || (which === 'every_but_max' && given === TIMESTAMP_MAX)) return undefined
    return `must not be more than ${seconds} s above the server's clock`
  }
}
