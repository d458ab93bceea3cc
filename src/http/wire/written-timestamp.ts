import { WRITE_AHEAD_MS_MAX } from '../../limits.js'
import type { Store } from '../../store/store.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../../timestamp.js'

interface Keyword {
  (which: 'every' | 'every_but_max', given: unknown): boolean
  errors?: { keyword: string; message: string; params: object }[]
}

/**
 * The schema keyword `written` bounds timestamps at which a record or lock may be written: they must not be far above the clock.
 * No transaction could write a key that has a record in the future until the clock reaches it.
 */
export function writtenTimestampKeyword({ now }: { readonly now: Store['now'] }) {
  const seconds = WRITE_AHEAD_MS_MAX / 1000
  /** The bound when the clock was last read. It stays valid, because the clock never goes back. */
  let allowed: Timestamp = 0
  const validate: Keyword = (which, given) => {
    if (typeof given !== 'number' || given <= allowed) return true
    allowed = now() + timestampFromMs(WRITE_AHEAD_MS_MAX)
    if (given <= allowed || (which === 'every_but_max' && given === TIMESTAMP_MAX)) return true
    const message = `must not be more than ${seconds} s above the server's clock`
    validate.errors = [{ keyword: 'written', message, params: {} }]
    return false
  }
  return { keyword: 'written', schemaType: 'string', errors: true, validate } as const
}
