import { Shares } from '../access/shares.js'
import { keyText } from '../bytes/key-text.js'
import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import type { Coordinator } from '../coordinator/coordinator.js'
import type { Waiting } from '../coordinator/lock-resolver.js'
import type { MergedVersion, Transaction } from '../coordinator/transaction.js'
import { Undetermined } from '../coordinator/undetermined.js'
import type { MergedScan, ScanOrder, WritesView } from '../coordinator/write-buffer.js'
import { KvError } from '../errors/kv-error.js'
import { type LazySignal, requireWanted } from '../event-loop/lazy-signal.js'
import type { Stages } from '../event-loop/stages.js'
import { type Limits, LOCK_WAIT_MS_DEFAULT, TXN_REMEMBERED_MS, TXNS_REMEMBERED_MAX } from '../limits.js'
import type { CommitEffects } from '../percolator/commit-effects.js'
import { alreadyCommitted, belowSafePoint } from '../percolator/errors.js'
import { type Expiry, expireTsOf } from '../percolator/expiry.js'
import type { Stamped } from '../percolator/stamped-key.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { type Check, requireChecks } from './check.js'
import { mayChange, requireLeases } from './commit-effects.js'
import { COMMIT_TS_OF_ROW, type Idempotency, type Once } from './idempotency.js'
import { type BeginOptions, InteractiveTransaction, type TxnState } from './interactive-transaction.js'
import { type Op, type OpResult, runOps } from './op.js'
import type { Outcomes } from './outcomes.js'
import { newTxnId, serverOfTxn } from './txn-id.js'

export interface TxnKeyRequest extends Waiting {
  readonly key: Uint8Array
}

export interface TxnWriteRequest extends TxnKeyRequest {
  readonly checks?: readonly Check[] | undefined
}

export interface TxnPutRequest extends TxnWriteRequest {
  readonly value: Uint8Array
  readonly expiry?: Expiry | undefined
}

type TransactionLimits = Pick<Limits, 'txnBytesMax' | 'txnsBytesMax' | 'txnsMax' | 'requestKeysMax'>

export interface Committed {
  readonly commitTs: Timestamp
  /** The versionstamped puts, in their order. Absent without any, and in a repeat that has no idempotency key. */
  readonly stamped?: readonly Stamped[]
}

/** An ended transaction, remembered so that its commit or rollback can be repeated. */
interface Ended {
  readonly state: TxnState
  readonly owner: string | undefined
  /** 0 when rolled back. */
  readonly commitTs: Timestamp
  /** Error of the refused commit. A client that lost this answer and commits again gets it again. */
  readonly failure: unknown
  readonly forgetAt: number
}

/**
 * The interactive transactions of this process. They exist in memory only: a restart loses them with their writes and
 * pessimistic locks. Nothing of them is on disk before they commit.
 */
export class InteractiveTransactions {
  readonly #open = new Map<string, InteractiveTransaction>()
  /** In the order in which they ended. */
  readonly #ended = new Map<string, Ended>()
  readonly #store: Store
  readonly #coordinator: Coordinator
  readonly #outcomes: Outcomes
  readonly #limits: TransactionLimits
  readonly #server: string | undefined
  /** Lower bounds of the start_ts of transactions whose `begin` is in flight. */
  readonly #beginning = new Set<{ readonly startTsMin: Timestamp }>()
  /** Bytes buffered by open transactions. */
  #bytes = 0
  /** Per owner: the number of transactions that are open or about to be. */
  readonly #openOf = new Shares()
  readonly #bytesByOwner = new Shares()

  /** @param server id of this server when several share the store. */
  constructor(
    store: Store,
    coordinator: Coordinator,
    outcomes: Outcomes,
    limits: TransactionLimits,
    server?: string | undefined,
  ) {
    this.#server = server
    this.#store = store
    this.#outcomes = outcomes
    this.#coordinator = coordinator
    this.#limits = limits
  }

  get size(): number {
    return this.#open.size
  }
  get bytes(): number {
    return this.#bytes
  }

  /** Snapshots that garbage collection must leave readable. */
  *startTs(): Generator<Timestamp> {
    for (const { txn } of this.#open.values()) yield txn.startTs
    for (const { startTsMin } of this.#beginning) yield startTsMin
  }

  /** @throws KvError `overloaded` */
  async begin(options: BeginOptions): Promise<{ txn: string; startTs: Timestamp }> {
    this.#forgetEnded()
    if (this.#open.size + this.#beginning.size >= this.#limits.txnsMax)
      throw new KvError('overloaded', `${this.#limits.txnsMax} transactions are open`, {})
    if (this.#ended.size >= TXNS_REMEMBERED_MAX)
      throw new KvError('overloaded', 'too many transactions have ended just now', {})
    const { owner } = options
    this.#openOf.require(owner, this.#limits.txnsMax, 'open transactions')
    this.#requireRoom(owner)
    const beginning = { startTsMin: this.#store.time.nextTsMin }
    this.#beginning.add(beginning)
    this.#openOf.add(owner, 1)
    try {
      return await aboveSafePoint(() => this.#begin(options))
    } catch (error) {
      this.#openOf.add(owner, -1)
      throw error
    } finally {
      this.#beginning.delete(beginning)
    }
  }

  async #begin(options: BeginOptions): Promise<{ txn: string; startTs: Timestamp }> {
    const id = newTxnId(this.#server)
    const abort = new AbortController()
    const { mode, isolation } = options
    const txn = await this.#coordinator.begin({
      mode,
      isolation,
      lockWaitMs: LOCK_WAIT_MS_DEFAULT,
      bytesMax: this.#limits.txnBytesMax,
      keysMax: this.#limits.requestKeysMax,
      signal: abort.signal,
    })
    if (txn.startTs < this.#store.safePoint) throw belowSafePoint(txn.startTs, this.#store.safePoint)
    const open = new InteractiveTransaction(id, txn, options, abort, () => this.#expire(open))
    this.#open.set(id, open)
    return { txn: id, startTs: txn.startTs }
  }

  // ---- Calls inside a transaction. Each may throw `txn_not_found`; calls that write or lock may throw `overloaded`.

  get(id: string, { key, lockWaitMs, signal }: TxnKeyRequest): Promise<MergedVersion | undefined> {
    return this.#read(id, (txn) => txn.get(key, lockWaitMs, signal))
  }

  getForUpdate(id: string, { key, lockWaitMs, signal }: TxnKeyRequest): Promise<MergedVersion | undefined> {
    return this.#write(id, signal, (txn) => txn.getForUpdate(key, lockWaitMs, signal))
  }

  /** The writes as of now, for a scan that reads all its pages in one call. Must be released. */
  view(id: string): WritesView {
    return this.#find(id).txn.view()
  }

  scan(id: string, request: ScanOrder & Waiting, writes: WritesView): Promise<MergedScan> {
    return this.#read(id, (txn) => txn.scan(request, request.lockWaitMs, request.signal, writes))
  }

  /**
   * Reads one page of a scan whose pages are requested one by one.
   * @param given number of the scan, after its first page.
   * @returns the page, with the scan's number if more pages may follow. @throws KvError `invalid_argument` when the
   *   scan is forgotten.
   */
  async scanPage(
    id: string,
    request: Waiting,
    limit: number,
    read: (page: (order: ScanOrder) => Promise<MergedScan>) => Promise<MergedScan>,
    given?: number,
  ): Promise<MergedScan & { readonly scan: number | undefined }> {
    const open = this.#find(id)
    const writes = given === undefined ? open.txn.view() : open.scanned(given)
    let scan = given
    try {
      const page = await read((order) => this.scan(id, { ...order, ...request }, writes))
      const isLast = page.cutAfter === undefined && page.pairs.length < limit
      if (!isLast) scan ??= open.keepScan(writes)
      return { ...page, scan }
    } finally {
      writes.release()
      if (scan !== undefined) this.#countHeld(open)
    }
  }

  /** @throws KvError `precondition_failed` */
  put(id: string, request: TxnPutRequest): Promise<void> {
    return this.#write(id, request.signal, async (txn) => {
      await requireConditions(txn, request)
      const { key, value, expiry, lockWaitMs, signal } = request
      await txn.put(key, value, { expireTs: expireTsOf(expiry, this.#store.time.clock()) }, lockWaitMs, signal)
    })
  }

  /** @throws KvError `precondition_failed` */
  delete(id: string, request: TxnWriteRequest): Promise<void> {
    return this.#write(id, request.signal, async (txn) => {
      await requireConditions(txn, request)
      await txn.delete(request.key, request.lockWaitMs, request.signal)
    })
  }

  /** Runs several ops. When one fails, the writes of all of them are undone. */
  async run(id: string, ops: readonly Op[], signal?: LazySignal): Promise<OpResult[]> {
    const read = this.#store.answers.lease(this.#open.get(id)?.options.owner)
    try {
      return await this.#write(id, signal, (txn) =>
        txn.atomically(async () => runOps(txn, ops, this.#store.time.clock(), read, signal)),
      )
    } finally {
      read.end()
    }
  }

  /** Calls that only read may overlap. */
  #read<T>(id: string, body: (txn: Transaction) => Promise<T>): Promise<T> {
    const open = this.#find(id)
    return this.#counted(open, () => body(open.txn))
  }

  /** Calls that write or lock run one after another, in order of arrival. */
  #write<T>(id: string, signal: LazySignal | undefined, body: (txn: Transaction) => Promise<T>): Promise<T> {
    const open = this.#find(id)
    return this.#counted(open, () =>
      open.inTurn(() => {
        requireWanted(signal)
        this.#requireRoom(open.options.owner)
        return body(open.txn)
      }),
    )
  }

  async #counted<T>(open: InteractiveTransaction, body: () => Promise<T>): Promise<T> {
    try {
      return await open.during(body)
    } finally {
      this.#countHeld(open)
    }
  }

  #countHeld(open: InteractiveTransaction): void {
    if (this.#open.has(open.id)) this.#count(open, open.boundScans(this.#limits.txnBytesMax))
  }

  #count(open: InteractiveTransaction, bytes: number): void {
    this.#bytes += bytes - open.bytes
    this.#bytesByOwner.add(open.options.owner, bytes - open.bytes)
    open.bytes = bytes
  }

  /** @throws KvError `overloaded` */
  #requireRoom(owner: string | undefined): void {
    if (this.#bytes >= this.#limits.txnsBytesMax)
      throw new KvError('overloaded', `the open transactions hold over ${this.#limits.txnsBytesMax} bytes`, {})
    this.#bytesByOwner.require(owner, this.#limits.txnsBytesMax, 'bytes in open transactions')
  }

  // ---- The end

  /**
   * Commits. A repeat within `TXN_REMEMBERED_MS` gets the same answer.
   * @param idempotency if given, the answer is stored in the same batch as the writes, and a repeat after a restart gets it.
   * @param signal ends a commit that waits, and rolls the transaction back. An undetermined commit ignores it.
   * @param commitEffects travel on the commit. A repeated commit ignores them: those of the first one count.
   * @throws KvError `txn_not_found`; the errors of `Outcomes`, which leave the transaction open; the errors of
   *   `Transaction.commit`, which roll it back, except `invalid_argument`; `storage_unavailable`, after which a repeat finds out
   *   the outcome.
   */
  async commit(
    id: string,
    idempotency: Idempotency | undefined,
    commitEffects?: CommitEffects,
    signal?: AbortSignal,
    stages?: Stages,
  ): Promise<Once<Committed>> {
    this.#open.get(id)?.touch()
    if (idempotency === undefined)
      return { answer: await this.#commit(id, commitEffects, signal, stages), isReplayed: false }
    return this.#store.system.hold([`outcome/${keyText(idempotency.key)}`], async () => {
      const earlier = await this.#outcomes.find<Committed>(idempotency, signal)
      if (earlier !== undefined) return earlier
      const stored = idempotency.mayWrite ? idempotency : undefined
      return { answer: await this.#commit(id, commitEffects, signal, stages, stored), isReplayed: false }
    })
  }

  /** @param stored if given, the outcome is stored under it. */
  async #commit(
    id: string,
    commitEffects: CommitEffects | undefined,
    signal: AbortSignal | undefined,
    stages: Stages | undefined,
    stored?: Idempotency,
  ): Promise<Committed> {
    const ended = this.#ended.get(id)
    if (ended?.failure !== undefined) throw ended.failure
    if (ended !== undefined && ended.commitTs > 0) {
      requireWanted(signal)
      return { commitTs: ended.commitTs }
    }
    const open = this.#find(id)
    const { commitTs, row, named } = await open
      .during(() =>
        open.inTurn(async () => {
          if (signal?.aborted && open.txn.state === 'open') {
            await open.txn.rollback()
            throw signal.reason
          }
          if (open.txn.writes === 0 && commitEffects !== undefined && !mayChange(commitEffects)) {
            try {
              await requireLeases(this.#store.leases, commitEffects)
            } catch (error) {
              await open.txn.rollback()
              throw error
            }
          }
          const prewrite: Store['prewrite'] = (request) => this.#store.prewrite({ ...request, stages })
          const stamped = open.txn.stamped.map(({ key, counter }) => ({ key, counter }))
          const named = stamped.length === 0 ? {} : { stamped }
          const row = stored && this.#outcomes.rowOf(stored, { commitTs: COMMIT_TS_OF_ROW, ...named })
          return { commitTs: await open.txn.commit(prewrite, commitEffects, signal, stages, row), row, named }
        }),
      )
      .catch((error: unknown) => {
        if (error instanceof Undetermined) throw error.cause
        if (open.txn.state !== 'open') this.#end(open, error)
        throw error
      })
    this.#end(open)
    // The outcome of an empty transaction is stored too, because it could not run again after a restart.
    if (stored !== undefined && commitTs === open.txn.startTs) await this.#outcomes.store(stored, { commitTs })
    else if (stored !== undefined && row !== undefined) this.#outcomes.stored(stored, row)
    return { commitTs, ...named }
  }

  /** Idempotent. @throws KvError `txn_not_found`, `already_committed` */
  async rollback(id: string): Promise<void> {
    const ended = this.#ended.get(id)
    if (ended?.commitTs === 0) return
    if (ended !== undefined) {
      throw alreadyCommitted(undefined, ended.state.startTs, ended.commitTs)
    }
    const open = this.#find(id)
    if (open.txn.state === 'open') open.abort.abort(notFound(open.txn.startTs, 'is rolled back'))
    await open
      .during(() => open.inTurn(() => open.txn.rollback()))
      .catch((error: unknown) => {
        if (error instanceof Undetermined) throw error.cause
        if (open.txn.state === 'committed') this.#end(open)
        throw error
      })
    this.#end(open)
  }

  /** Other callers must not learn that the transaction exists. @throws KvError `txn_not_found` for another owner. */
  requireOwner(id: string, owner: string | undefined): void {
    const found = this.#open.get(id)?.options ?? this.#ended.get(id)
    if (found !== undefined && found.owner !== owner) throw this.#unknown(id)
  }

  /** True while it can be written to, or committed for the first time. */
  isOpen(id: string): boolean {
    return this.#open.get(id)?.txn.state === 'open'
  }

  requireOpen(id: string): void {
    this.#find(id)
  }

  state(id: string): TxnState {
    return this.#ended.get(id)?.state ?? this.#find(id).state
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#open.keys()].map((id) => this.rollback(id)))
  }

  /** Also restarts the idle timeout. */
  #find(id: string): InteractiveTransaction {
    const open = this.#open.get(id)
    if (open !== undefined) {
      open.touch()
      return open
    }
    const ended = this.#ended.get(id)
    if (ended === undefined) throw this.#unknown(id)
    throw notFound(ended.state.startTs, ended.commitTs > 0 ? 'is committed already' : 'is rolled back')
  }

  #unknown(id: string): KvError<'txn_not_found'> {
    const server = this.#server === undefined ? undefined : serverOfTxn(id)
    if (server !== undefined && server !== this.#server)
      return new KvError('txn_not_found', `the transaction lived in the server ${server}, which is not reached`, {
        server,
      })
    return notFound(undefined, 'is not known: it has expired, or the server was restarted')
  }

  #end(open: InteractiveTransaction, failure?: unknown): void {
    if (!this.#gone(open)) return
    open.stopTimer()
    const now = this.#forgetEnded()
    const state = { ...open.state, expiresInMs: 0 }
    const commitTs = open.txn.commitTs ?? 0
    this.#ended.set(open.id, { state, owner: open.options.owner, commitTs, failure, forgetAt: now + TXN_REMEMBERED_MS })
  }

  #gone(open: InteractiveTransaction): boolean {
    if (!this.#open.delete(open.id)) return false
    this.#count(open, 0)
    this.#openOf.add(open.options.owner, -1)
    return true
  }

  #forgetEnded(): number {
    const now = performance.now()
    for (const [id, { forgetAt }] of this.#ended) {
      if (forgetAt > now) break
      this.#ended.delete(id)
    }
    return now
  }

  /** An expired transaction is not remembered, because its client no longer uses it. */
  #expire(open: InteractiveTransaction): void {
    this.#gone(open)
    open.abort.abort(notFound(open.txn.startTs, 'has expired'))
    if (open.txn.state === 'open') this.#coordinator.inBackground(open.txn.rollback())
  }
}

/** Reads the key as a write does, so that a concurrent change is a conflict. @throws KvError `precondition_failed` */
async function requireConditions(txn: Transaction, request: TxnWriteRequest): Promise<void> {
  const { key, checks = [], lockWaitMs, signal } = request
  if (checks.length === 0) return
  const found = await txn.getToWrite(key, lockWaitMs, signal)
  requireChecks(checks, () => found)
}

function notFound(startTs: Timestamp | undefined, what: string): KvError<'txn_not_found'> {
  return new KvError('txn_not_found', `the transaction ${what}`, startTs === undefined ? {} : { startTs })
}
