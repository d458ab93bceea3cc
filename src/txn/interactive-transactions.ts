import { randomBytes } from 'node:crypto'
import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import type { Coordinator } from '../coordinator/coordinator.js'
import type { Transaction } from '../coordinator/transaction.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { KvError } from '../errors/kv-error.js'
import { type Limits, LOCK_WAIT_MS_DEFAULT, TXN_REMEMBERED_MS, TXNS_REMEMBERED_MAX } from '../limits.js'
import { alreadyCommitted, belowSafePoint } from '../percolator/errors.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import type { Idempotency, Once } from './idempotency.js'
import type { Outcomes } from './outcomes.js'

export interface BeginOptions {
  readonly mode: 'optimistic' | 'pessimistic'
  readonly isolation: 'snapshot' | 'serializable'
  /** Milliseconds without a request after which it is rolled back. */
  readonly ttlMs: number
  /** Who alone may use it; undefined: anybody who knows its id. */
  readonly owner?: string | undefined
}

/** What `GET /v1/txn/{txn}` shows. */
export interface TxnState {
  readonly txn: string
  readonly startTs: Timestamp
  readonly mode: BeginOptions['mode']
  /** `undetermined`: the storage failed while it committed; committing again tells. */
  readonly state: 'open' | 'committing' | 'undetermined' | 'committed' | 'rolled_back'
  /** Keys written. */
  readonly writes: number
  /** 0 once it has ended. */
  readonly expiresInMs: number
}

/** A transaction that spans several requests. */
class OpenTransaction {
  /** Requests that change it run one after another, in order of arrival. */
  #last: Promise<unknown> = Promise.resolve()
  #running = 0
  #expiresAt = 0
  readonly #timer: NodeJS.Timeout
  /** As counted last. */
  bytes = 0

  constructor(
    readonly id: string,
    readonly txn: Transaction,
    readonly options: BeginOptions,
    /** Ends its waits. */
    readonly abort: AbortController,
    onExpiry: () => void,
  ) {
    this.#timer = setTimeout(() => {
      if (this.#running > 0) this.#timer.refresh()
      else onExpiry()
    }, options.ttlMs)
    this.#timer.unref()
    this.touch()
  }

  get expiresInMs(): number {
    return Math.max(0, Math.ceil(this.#expiresAt - performance.now()))
  }

  touch(): void {
    this.#expiresAt = performance.now() + this.options.ttlMs
    this.#timer.refresh()
  }

  /** Alive while `body` runs, and for its TTL afterwards. */
  async during<T>(body: () => Promise<T>): Promise<T> {
    this.#running++
    try {
      return await body()
    } finally {
      this.#running--
      this.touch()
    }
  }

  inTurn<T>(body: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(body)
    this.#last = turn.catch(() => {})
    return turn
  }

  stopTimer(): void {
    clearTimeout(this.#timer)
  }
}

type TransactionLimits = Pick<Limits, 'txnBytesMax' | 'txnsBytesMax' | 'txnsMax' | 'requestKeysMax'>

/** What is remembered of a transaction that has ended. */
interface Ended {
  readonly state: TxnState
  readonly owner: string | undefined
  /** 0: rolled back. */
  readonly commitTs: Timestamp
  /** Why its commit was refused: who lost that answer and commits again hears it again. */
  readonly failure: unknown
  readonly forgetAt: number
}

/**
 * The interactive transactions of this process. They live in memory: a restart forgets them, and with them their
 * writes and pessimistic locks; nothing of them is on disk before they commit.
 */
export class OpenTransactions {
  readonly #open = new Map<string, OpenTransaction>()
  /** In the order in which they ended. */
  readonly #ended = new Map<string, Ended>()
  readonly #store: Store
  readonly #coordinator: Coordinator
  readonly #outcomes: Outcomes
  readonly #limits: TransactionLimits
  /** Of transactions that have no start_ts yet: it is not going to be below this. */
  readonly #beginning = new Set<{ readonly startTsMin: Timestamp }>()
  /** That the open ones hold. */
  #bytes = 0

  constructor(store: Store, coordinator: Coordinator, outcomes: Outcomes, limits: TransactionLimits) {
    this.#store = store
    this.#outcomes = outcomes
    this.#coordinator = coordinator
    this.#limits = limits
  }

  get size(): number {
    return this.#open.size
  }
  /** What they hold in memory. */
  get bytes(): number {
    return this.#bytes
  }

  /** Of those that go on; the snapshots that they read. */
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
    this.#requireRoom()
    // Timestamps that are handed out from now on are of this millisecond or later.
    const beginning = { startTsMin: timestampFromMs(physicalMs(this.#store.clock())) }
    this.#beginning.add(beginning)
    try {
      return await aboveSafePoint(() => this.#begin(options))
    } finally {
      this.#beginning.delete(beginning)
    }
  }

  async #begin(options: BeginOptions): Promise<{ txn: string; startTs: Timestamp }> {
    const id = randomBytes(16).toString('base64url')
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
    const open = new OpenTransaction(id, txn, options, abort, () => this.#expire(open))
    this.#open.set(id, open)
    return { txn: id, startTs: txn.startTs }
  }

  /** Runs a request that only reads; it may overlap others. @throws KvError `txn_not_found` */
  read<T>(id: string, body: (txn: Transaction) => Promise<T>): Promise<T> {
    const open = this.#find(id)
    return this.#counted(open, () => body(open.txn))
  }

  /** Runs a request that writes or locks, after those that came before. @throws KvError `txn_not_found`, `overloaded` */
  write<T>(id: string, body: (txn: Transaction) => Promise<T>): Promise<T> {
    const open = this.#find(id)
    return this.#counted(open, () =>
      open.inTurn(() => {
        this.#requireRoom()
        return body(open.txn)
      }),
    )
  }

  async #counted<T>(open: OpenTransaction, body: () => Promise<T>): Promise<T> {
    try {
      return await open.during(body)
    } finally {
      if (this.#open.has(open.id)) this.#count(open, open.txn.heldBytes)
    }
  }

  #count(open: OpenTransaction, bytes: number): void {
    this.#bytes += bytes - open.bytes
    open.bytes = bytes
  }

  /** @throws KvError `overloaded` */
  #requireRoom(): void {
    if (this.#bytes >= this.#limits.txnsBytesMax)
      throw new KvError('overloaded', `the open transactions hold over ${this.#limits.txnsBytesMax} bytes`, {})
  }

  /**
   * Commits; again: the same answer, for a while.
   * @param idempotency given: the answer is stored with what is written, and replayed over restarts too.
   * @throws KvError `txn_not_found`; what `Outcomes.once` throws, the transaction stays open then; what `Transaction.commit` throws, the transaction is rolled
   *   back then; `storage_unavailable`: unknown, commit again to learn.
   */
  commit(id: string, idempotency: Idempotency | undefined): Promise<Once<{ commitTs: Timestamp }>> {
    this.#open.get(id)?.touch()
    // Of an empty one too: after a restart it could not be run again.
    return this.#outcomes.once(idempotency, idempotency?.mayWrite ? 'all' : 'nothing', async (beside) => {
      const ended = this.#ended.get(id)
      if (ended?.failure !== undefined) throw ended.failure
      if (ended !== undefined && ended.commitTs > 0) return { commitTs: ended.commitTs }
      const open = this.#find(id)
      const commitTs = await open
        .during(() =>
          open.inTurn(() =>
            open.txn.commit((request) =>
              this.#store.prewrite(
                request,
                beside && (({ onePcCommitTs: commitTs }) => (commitTs === undefined ? [] : beside({ commitTs }))),
              ),
            ),
          ),
        )
        .catch((error: unknown) => {
          if (error instanceof Undetermined) throw error.cause
          this.#end(open, error)
          throw error
        })
      this.#end(open)
      return { commitTs }
    })
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

  /** To others a transaction does not exist. One that is not known belongs to nobody. @throws KvError `txn_not_found` */
  requireOwner(id: string, owner: string | undefined): void {
    const found = this.#open.get(id)?.options ?? this.#ended.get(id)
    if (found !== undefined && found.owner !== owner) throw unknown()
  }

  /** @throws KvError `txn_not_found` */
  state(id: string): TxnState {
    const ended = this.#ended.get(id)
    return ended === undefined ? stateOf(this.#find(id)) : ended.state
  }

  /** Rolls all of them back. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#open.keys()].map((id) => this.rollback(id)))
  }

  /** Its life begins anew. */
  #find(id: string): OpenTransaction {
    const open = this.#open.get(id)
    if (open !== undefined) {
      open.touch()
      return open
    }
    const ended = this.#ended.get(id)
    if (ended === undefined) throw unknown()
    throw notFound(ended.state.startTs, ended.commitTs > 0 ? 'is committed already' : 'is rolled back')
  }

  #end(open: OpenTransaction, failure?: unknown): void {
    if (!this.#open.delete(open.id)) return
    open.stopTimer()
    this.#count(open, 0)
    const now = this.#forgetEnded()
    const state = { ...stateOf(open), expiresInMs: 0 }
    const commitTs = open.txn.commitTs ?? 0
    this.#ended.set(open.id, { state, owner: open.options.owner, commitTs, failure, forgetAt: now + TXN_REMEMBERED_MS })
  }

  /** @returns the time. */
  #forgetEnded(): number {
    const now = performance.now()
    for (const [id, { forgetAt }] of this.#ended) {
      if (forgetAt > now) break
      this.#ended.delete(id)
    }
    return now
  }

  /** Nobody asked for so long that nobody is going to: nothing is remembered. */
  #expire(open: OpenTransaction): void {
    this.#open.delete(open.id)
    this.#count(open, 0)
    open.abort.abort(notFound(open.txn.startTs, 'has expired'))
    if (open.txn.state === 'open') this.#coordinator.inBackground(open.txn.rollback())
  }
}

function stateOf({ id, txn, options, expiresInMs }: OpenTransaction): TxnState {
  return { txn: id, startTs: txn.startTs, mode: options.mode, state: txn.state, writes: txn.writes, expiresInMs }
}

function notFound(startTs: Timestamp | undefined, what: string): KvError<'txn_not_found'> {
  return new KvError('txn_not_found', `the transaction ${what}`, startTs === undefined ? {} : { startTs })
}

function unknown(): KvError<'txn_not_found'> {
  return notFound(undefined, 'is not known: it has expired, or the server was restarted')
}
