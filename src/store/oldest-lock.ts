import type { Lock } from '../percolator/lock.js'
import type { Timestamp } from '../timestamp.js'

const VISITS_MAX = 1000

export function oldestStartTs(locked: Iterable<{ readonly lock?: Lock | undefined }>): Timestamp | undefined {
  let oldest: Timestamp | undefined
  let visits = 0
  for (const { lock } of locked) {
    if (++visits > VISITS_MAX) break
    if (lock !== undefined) oldest = Math.min(oldest ?? lock.startTs, lock.startTs)
  }
  return oldest
}
