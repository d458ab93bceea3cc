import { afterKey, type KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import type { LockInfo } from '../errors/lock-info.js'
import type { PercolatorApi, ScanLockRequest } from '../percolator/api.js'

const LOCKS_AT_A_TIME = 1000

export async function* locksIn(
  api: Pick<PercolatorApi, 'scanLock'>,
  request: KeyRange & Omit<ScanLockRequest, 'limit'>,
): AsyncGenerator<readonly LockInfo[], void> {
  for (let { start } = request; ; ) {
    const { locks } = await api.scanLock({ ...request, start, limit: LOCKS_AT_A_TIME })
    yield locks
    const last = locks.at(-1)
    if (last === undefined || locks.length < LOCKS_AT_A_TIME) return
    start = afterKey(last.key)
  }
}

/**
 * Names the transaction of a lock. Clients choose start_ts, so two transactions may share one; the primary tells them apart.
 */
export function txnText({ startTs, primary }: Pick<LockInfo, 'startTs' | 'primary'>): string {
  return `${startTs} ${keyText(primary)}`
}
