import { lockCost } from '../../../bytes/answer-size.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { runSliced } from '../../../event-loop/time-slicer.js'
import { scanLock as selectLock } from '../../../percolator/actions/scan-lock.js'
import type { ScanLockAnswer, ScanLockRequest } from '../../../percolator/api.js'
import { TIMESTAMP_MAX } from '../../../timestamp.js'
import type { AnswerLease } from '../../answer-budget.js'
import type { LockEntry } from '../memory/lock-table.js'
import { guard } from './guard.js'
import { isInFlight } from './published-locks.js'
import type { RowStore } from './row-store.js'

export function scanLock(
  rows: RowStore,
  { maxTs, start, end, limit = Number.POSITIVE_INFINITY, isWanted, withReserved }: ScanLockRequest,
  lease?: AnswerLease,
): Promise<ScanLockAnswer> {
  return guard(async () => {
    rows.health.requireAvailable()
    if (maxTs !== TIMESTAMP_MAX) await rows.observeRead(maxTs)
    const locks: LockInfo[] = []
    const visit = (entry: LockEntry): boolean => {
      if (isInFlight(entry.lock)) return true
      const lock = rows.ages.seen(entry.lock)
      if (isWanted?.(lock) === false) return true
      const [info] = selectLock([{ ...entry, lock }], maxTs, 1)
      if (info === undefined) return true
      lease?.grow(lockCost(info))
      return locks.push(info) < limit
    }
    await runSliced(rows.locks.walk({ start, end }, visit, { withReserved }))
    return { locks }
  })
}
