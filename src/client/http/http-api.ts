import { signalOf } from '../../event-loop/lazy-signal.js'
import { ACQUIRE_WAIT_MS_DEFAULT } from '../../limits.js'
import type {
  AcquirePessimisticLockAnswer,
  AcquirePessimisticLockRequest,
  BatchGetRequest,
  CheckSecondaryLocksAnswer,
  CheckSecondaryLocksRequest,
  CheckTxnStatusRequest,
  CleanupRequest,
  CommitAnswer,
  CommitRequest,
  GetAnswer,
  GetRequest,
  MvccGetByStartTsRequest,
  MvccInfo,
  PairsAnswer,
  PercolatorApi,
  PessimisticRollbackRequest,
  PrewriteAnswer,
  PrewriteRequest,
  ResolveLockAnswer,
  ResolveLockRequest,
  RollbackRequest,
  ScanAnswer,
  ScanLockAnswer,
  ScanLockRequest,
  ScanRequest,
  TxnHeartBeatAnswer,
  TxnHeartBeatRequest,
  TxnStatus,
  ValidateReadsRequest,
} from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import { CALL_ANSWERS } from './call-answers.js'
import { encodeMessage, MSGPACK, messageOf } from './http-message.js'
import type { HttpTransport } from './http-transport.js'

export class HttpApi implements PercolatorApi {
  readonly #transport: HttpTransport
  readonly #signal: AbortSignal | undefined

  constructor(transport: HttpTransport, signal?: AbortSignal) {
    this.#transport = transport
    this.#signal = signal
  }

  /**
   * The same calls with a signal: they reject with its reason when it aborts. Calls that can end a transaction are not
   * interrupted, because an abort must not leave its outcome unknown.
   */
  withSignal(signal: AbortSignal | undefined): HttpApi {
    return signal === this.#signal ? this : new HttpApi(this.#transport, signal)
  }

  async tso(count: number): Promise<Timestamp> {
    return (await this.#ask<{ ts: Timestamp }>('tso', { count })).ts
  }
  async now(): Promise<Timestamp> {
    const { ts, now = ts } = await this.#ask<{ ts: Timestamp; now?: Timestamp }>('tso', {})
    return now
  }

  get(request: GetRequest): Promise<GetAnswer> {
    return this.#ask('get', request)
  }

  batchGet(request: BatchGetRequest): Promise<PairsAnswer> {
    return this.#ask('batch_get', request)
  }

  scan({ bytesMax: _inProcess, ...request }: ScanRequest): Promise<ScanAnswer> {
    return this.#ask('scan', request)
  }

  prewrite({ primary, commitEffects: riders, ...request }: PrewriteRequest): Promise<PrewriteAnswer> {
    const message = riders === undefined ? request : { ...request, riders }
    // Without mutations the server chooses the primary: a token with prefixes could not name it.
    return this.#send('prewrite', message.mutations.length === 0 ? message : { ...message, primary })
  }

  commit(request: CommitRequest): Promise<CommitAnswer> {
    return this.#send('commit', request)
  }

  async rollback(request: RollbackRequest): Promise<void> {
    await this.#send('rollback', request)
  }

  async cleanup(request: CleanupRequest): Promise<void> {
    await this.#send('cleanup', request)
  }

  checkTxnStatus(request: CheckTxnStatusRequest): Promise<TxnStatus> {
    return this.#send('check_txn_status', request)
  }

  checkSecondaryLocks(request: CheckSecondaryLocksRequest): Promise<CheckSecondaryLocksAnswer> {
    return this.#send('check_secondary_locks', request)
  }

  txnHeartBeat(request: TxnHeartBeatRequest): Promise<TxnHeartBeatAnswer> {
    return this.#send('txn_heart_beat', request)
  }

  acquirePessimisticLock(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { signal = this.#signal, ...message } = request
    const waitMs = Math.max(0, message.waitTimeout || ACQUIRE_WAIT_MS_DEFAULT)
    return this.#call('acquire_pessimistic_lock', message, signalOf(signal), waitMs)
  }

  async pessimisticRollback(request: PessimisticRollbackRequest): Promise<void> {
    await this.#send('pessimistic_rollback', request)
  }

  async validateReads({ leases, ...request }: ValidateReadsRequest): Promise<void> {
    const checked = leases && { leases: leases.map(({ lease, fence }) => ({ lease, fence })) }
    await this.#ask('validate_reads', { ...request, ...checked })
  }

  resolveLock({ txns, keys }: ResolveLockRequest): Promise<ResolveLockAnswer> {
    // The HTTP call accepts `keys` only together with a single transaction.
    return this.#send('resolve_lock', keys === undefined ? { txns } : { ...txns[0], keys })
  }

  scanLock(request: ScanLockRequest): Promise<ScanLockAnswer> {
    return this.#ask('scan_lock', request)
  }

  mvccGetByKey(request: { readonly key: Uint8Array }): Promise<MvccInfo> {
    return this.#ask('mvcc_get_by_key', request)
  }

  mvccGetByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }> {
    return this.#ask('mvcc_get_by_start_ts', request)
  }

  async deleteRange(request: { readonly start: Uint8Array; readonly end: Uint8Array }): Promise<void> {
    await this.#send('delete_range', request)
  }

  /** Sends a call that an abort interrupts. */
  #ask<T>(call: CallName, message: object): Promise<T> {
    return this.#call(call, message, this.#signal)
  }

  /** Sends a call that an abort does not interrupt. */
  #send<T>(call: CallName, message: object): Promise<T> {
    return this.#call(call, message, undefined)
  }

  async #call<T>(call: CallName, message: object, signal: AbortSignal | undefined, waitMs?: number): Promise<T> {
    const answer = await this.#transport.send({
      method: 'POST',
      path: `/v1/percolator/${call}`,
      headers: { 'content-type': MSGPACK },
      body: encodeMessage(message),
      waitMs,
      signal,
    })
    return messageOf<T>(answer, CALL_ANSWERS[call])
  }
}

type CallName = keyof typeof CALL_ANSWERS
