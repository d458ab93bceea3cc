import { keyText } from '../../../bytes/key-text.js'
import { stagesOf } from '../../../event-loop/lazy-signal.js'
import { timed } from '../../../event-loop/stages.js'
import type { StoreMeters } from '../../../meters/store-meters.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../../percolator/api.js'
import { expiresInMs } from '../../../percolator/lock.js'
import type { Timestamp } from '../../../timestamp.js'
import { accessGuard } from '../../calls/access-guard.js'
import { lockingAnswer, lockingDepthTs, lockKeys, versionsToRead } from '../../calls/lock-keys.js'
import type { IsClaimed, LockingRows, OnBusy } from '../../calls/pessimistic-locks.js'
import type { LockWaits } from '../../lock-waits.js'
import { guard } from './guard.js'
import { readPairs } from './pairs.js'
import type { RowStore } from './row-store.js'

/**
 * Pessimistic locks on the rows of a LevelDB. They are only in memory, as in TiKV: a prewrite can do without a lock that a crash
 * lost.
 */
export class LevelDbLockingRows implements LockingRows {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  get waits(): LockWaits {
    return this.#rows.waits
  }
  get meters(): StoreMeters {
    return this.#rows.meters
  }
  get lockCount(): number {
    return this.#rows.locks.size
  }
  observeRead(ts: Timestamp): undefined | Promise<void> {
    return this.#rows.observeRead(ts)
  }
  holderOf(key: Uint8Array): Timestamp | undefined {
    return this.#rows.locks.get(key)?.lock.startTs
  }
  lockLeftMs(key: Uint8Array): number {
    const now = this.#rows.now() // Notices a jump of the clock before the lock's age is computed.
    const lock = this.#rows.lockOf(key)
    return lock === undefined ? Number.POSITIVE_INFINITY : expiresInMs(this.#rows.ages.seen(lock), now)
  }
  isLockPending(key: Uint8Array): boolean {
    return this.#rows.locks.get(key)?.pending !== undefined
  }

  lock<T>(request: AcquirePessimisticLockRequest, isClaimed: IsClaimed, onBusy: OnBusy<T>) {
    const keys = request.keys.map(keyText)
    const stages = stagesOf(request.signal)
    const beganMs = stages === undefined ? 0 : performance.now()
    return guard(() =>
      this.#rows.latches.hold(keys, () => {
        stages?.since('latchMs', beganMs)
        return this.#lockLatched(request, isClaimed, onBusy)
      }),
    )
  }

  async #lockLatched<T>(
    request: AcquirePessimisticLockRequest,
    isClaimed: IsClaimed,
    onBusy: OnBusy<T>,
  ): Promise<AcquirePessimisticLockAnswer | T> {
    const { keys, startTs, mayAccess } = request
    const requireAccess = mayAccess && (await accessGuard(this.#rows, keys, startTs, mayAccess))
    const rows = await timed(
      stagesOf(request.signal),
      'readMs',
      this.#rows.readRows(keys, lockingDepthTs(request), 'data'),
    )
    // One turn of the event loop from here until the locks are published, or the request has its place in the queue.
    const locking = lockKeys(this.#rows, rows, request, isClaimed)
    if (locking.kind === 'busy') return onBusy(locking.key, locking.error)
    requireAccess?.(locking.mutations, rows)
    await this.#rows.apply(locking.mutations)
    this.#rows.waits.acquired(startTs)
    const read = await readPairs(this.#rows.engine, versionsToRead(locking.keys, request))
    return lockingAnswer(locking.keys, read, request)
  }
}
