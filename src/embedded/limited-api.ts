import { requireKey, requireValue } from '../bytes/byte-limits.js'
import type { Database } from '../database/database.js'
import type { Awaitable } from '../event-loop/after.js'
import type { Limits } from '../limits.js'
import type * as api from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'

export type PairLimits = Pick<Limits, 'keyBytesMax' | 'valueBytesMax'>

export class LimitedApi implements api.PercolatorApi {
  readonly #api: api.PercolatorApi
  readonly #prewrite: Database['prewrite']
  readonly #limits: PairLimits

  constructor(database: Pick<Database, 'store' | 'prewrite'>, limits: PairLimits) {
    this.#api = database.store
    this.#prewrite = (request) => database.prewrite(request)
    this.#limits = limits
  }

  get(request: api.GetRequest): Promise<api.GetAnswer> {
    return this.#checked([request.key], () => this.#api.get(request))
  }
  batchGet(request: api.BatchGetRequest): Promise<api.PairsAnswer> {
    return this.#checked(request.keys, () => this.#api.batchGet(request))
  }
  acquirePessimisticLock(request: api.AcquirePessimisticLockRequest): Promise<api.AcquirePessimisticLockAnswer> {
    return this.#checked(request.keys, () => this.#api.acquirePessimisticLock(request))
  }
  async prewrite(request: api.PrewriteRequest): Promise<api.PrewriteAnswer> {
    for (const { key, keyAt, value } of request.mutations) {
      requireKey(keyAt === undefined ? key : keyAt(request.startTs), 'key', this.#limits.keyBytesMax)
      if (value !== undefined) requireValue(value, 'value', this.#limits.valueBytesMax)
    }
    return this.#prewrite(request)
  }

  async #checked<T>(keys: readonly Uint8Array[], call: () => Awaitable<T>): Promise<T> {
    for (const key of keys) requireKey(key, 'key', this.#limits.keyBytesMax)
    return call()
  }

  tso(count: number): Timestamp | Promise<Timestamp> {
    return this.#api.tso(count)
  }
  now(): Timestamp | Promise<Timestamp> {
    return this.#api.now()
  }
  scan(request: api.ScanRequest): Promise<api.ScanAnswer> {
    return this.#api.scan(request)
  }
  commit(request: api.CommitRequest): Promise<api.CommitAnswer> {
    return this.#api.commit(request)
  }
  rollback(request: api.RollbackRequest): Promise<void> {
    return this.#api.rollback(request)
  }
  cleanup(request: api.CleanupRequest): Promise<void> {
    return this.#api.cleanup(request)
  }
  checkTxnStatus(request: api.CheckTxnStatusRequest): Promise<api.TxnStatus> {
    return this.#api.checkTxnStatus(request)
  }
  checkSecondaryLocks(request: api.CheckSecondaryLocksRequest): Promise<api.CheckSecondaryLocksAnswer> {
    return this.#api.checkSecondaryLocks(request)
  }
  txnHeartBeat(request: api.TxnHeartBeatRequest): Promise<api.TxnHeartBeatAnswer> {
    return this.#api.txnHeartBeat(request)
  }
  pessimisticRollback(request: api.PessimisticRollbackRequest): Promise<void> {
    return this.#api.pessimisticRollback(request)
  }
  validateReads(request: api.ValidateReadsRequest): Promise<void> {
    return this.#api.validateReads(request)
  }
  resolveLock(request: api.ResolveLockRequest): Promise<api.ResolveLockAnswer> {
    return this.#api.resolveLock(request)
  }
  scanLock(request: api.ScanLockRequest): Promise<api.ScanLockAnswer> {
    return this.#api.scanLock(request)
  }
  mvccGetByKey(request: { readonly key: Uint8Array }): Promise<api.MvccInfo> {
    return this.#api.mvccGetByKey(request)
  }
  mvccGetByStartTs(request: api.MvccGetByStartTsRequest): Promise<api.MvccInfo & { readonly key?: Uint8Array }> {
    return this.#api.mvccGetByStartTs(request)
  }
  deleteRange(request: { readonly start: Uint8Array; readonly end: Uint8Array }): Promise<void> {
    return this.#api.deleteRange(request)
  }
}
