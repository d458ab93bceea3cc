import { KvError } from '../errors/kv-error.js'
import { belowSafePoint } from '../percolator/errors.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'

/** @throws KvError `ts_below_safe_point` when a feed cannot begin at `since`. */
export function requireTold({ log, safePoint }: Pick<Store, 'log' | 'safePoint'>, since: Timestamp): void {
  const { start } = log
  if (since >= start) return
  if (start <= safePoint) throw belowSafePoint(since, start)
  const detail = `the feed begins at ${start}, with the first reader of this store, and not at ${since}`
  throw new KvError('ts_below_safe_point', detail, { safePoint: start })
}
