import { acquirePessimisticLock } from '../../percolator/actions/acquire-pessimistic-lock.js'
import { pessimisticRollback } from '../../percolator/actions/pessimistic-rollback.js'
import type {
  AcquirePessimisticLockAnswer,
  AcquirePessimisticLockRequest,
  LockInfo,
  PessimisticLockResult,
  PessimisticRollbackRequest,
} from '../../percolator/api.js'
import { belowSafePoint, isKvError, KvError, printKey } from '../../percolator/errors.js'
import { keyText } from '../../percolator/key-text.js'
import { done, type Mutation } from '../../percolator/row.js'
import type { Turn } from './lock-waits.js'
import { readPairs } from './reads.js'
import { NONE, type RowStore } from './row-store.js'

/** TiKV's `pessimistic-txn.wait-for-lock-timeout`. */
const WAIT_MS_DEFAULT = 1000

/**
 * Locks taken before the prewrite, and the waiting for them. They stand in memory alone, as in TiKV: a prewrite makes do
 * without one that a crash took.
 */
export class PessimisticLocks {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  async acquire(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { keys, forUpdateTs, waitTimeout = 0 } = request
    const waitMs = waitTimeout === 0 ? WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const deadline = performance.now() + waitMs
    await this.#rows.guard(() => this.#rows.observe(forUpdateTs)) // It reads: nobody may commit below what it saw.
    let turn: Turn | undefined
    for (let isLastTry = waitMs === 0; ; ) {
      const tried = await this.#rows
        .guard(() => this.#rows.latches.hold(keys.map(keyText), () => this.#tryLock(request, isLastTry, deadline)))
        .finally(() => turn?.done())
      if (!('wait' in tried)) return tried
      turn = await tried.wait
      isLastTry = turn === undefined
    }
  }

  /** Locks all the keys or none. @returns the place in the queue of the first key that is locked, if one is. */
  async #tryLock(
    request: AcquirePessimisticLockRequest,
    isLastTry: boolean,
    deadline: number,
  ): Promise<AcquirePessimisticLockAnswer | { wait: Promise<Turn | undefined> }> {
    const { keys, startTs, forUpdateTs, waitTimeout, signal } = request
    const rows = await this.#rows.readRows(keys, Math.min(startTs, forUpdateTs), () => 'data')
    if (startTs < this.#rows.safePoint) throw belowSafePoint(startTs, this.#rows.safePoint)
    const wait = (key: Uint8Array): { wait: Promise<Turn | undefined> } => {
      const timeoutMs = Math.max(0, deadline - performance.now())
      return { wait: this.#rows.waits.enqueue(key, startTs, { timeoutMs, signal }) }
    }
    const acquired = []
    const mutations: Mutation[] = []
    for (const row of rows) {
      const claimant = row.lock === undefined ? this.#rows.waits.claimant(row.key) : undefined
      if (claimant !== undefined && claimant < startTs && !isLastTry) return wait(row.key) // An older one was woken for it.
      const outcome = acquirePessimisticLock(row, request)
      if (!outcome.ok) {
        if (!isKvError(outcome.error, 'key_locked') || waitTimeout === -1) throw outcome.error
        if (isLastTry) throw lockWaitTimeout(row.key, outcome.error.fields.lock as LockInfo)
        return wait(row.key)
      }
      acquired.push({ key: row.key, ...outcome.value })
      mutations.push(...outcome.mutations)
    }
    await this.#rows.apply(mutations)
    this.#rows.waits.acquired(startTs)
    const wanted = acquired.flatMap(({ key, version, lockedWithConflictTs }) =>
      version !== undefined && (request.returnValues || lockedWithConflictTs !== undefined)
        ? [{ key, write: version }]
        : [],
    )
    const pairs = new Map((await readPairs(this.#rows.engine, wanted)).map((pair) => [keyText(pair.key), pair]))
    const results = acquired.map(({ key, version, lockedWithConflictTs }): PessimisticLockResult => {
      const { value, commitTs } = pairs.get(keyText(key)) ?? {}
      const isTold = request.returnValues || request.checkExistence || lockedWithConflictTs !== undefined
      return {
        ...(isTold ? { found: version !== undefined } : {}),
        ...(value === undefined ? {} : { value }),
        ...(commitTs === undefined ? {} : { commitTs }),
        ...(lockedWithConflictTs === undefined ? {} : { lockedWithConflictTs }),
      }
    })
    return { results }
  }

  rollback({ keys, startTs, forUpdateTs }: PessimisticRollbackRequest): Promise<void> {
    return this.#rows.update(keys, startTs, NONE, (rows) =>
      done(
        undefined,
        rows.flatMap((row) => {
          const outcome = pessimisticRollback(row, startTs, forUpdateTs)
          return outcome.ok ? outcome.mutations : []
        }),
      ),
    )
  }
}

function lockWaitTimeout(key: Uint8Array, lock: LockInfo): KvError<'lock_wait_timeout'> {
  const detail = `waited for the lock on ${printKey(key)} as long as asked`
  return new KvError('lock_wait_timeout', detail, { key, lock })
}
