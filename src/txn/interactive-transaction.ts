import type { Transaction } from '../coordinator/transaction.js'
import type { WritesView } from '../coordinator/write-buffer.js'
import { invalid } from '../errors/kv-error.js'
import { TXN_SCANS_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'

export interface BeginOptions {
  readonly mode: 'optimistic' | 'pessimistic'
  readonly isolation: 'snapshot' | 'serializable'
  readonly ttlMs: number
  /** Only this caller may use the transaction. undefined: every caller that knows its id may. */
  readonly owner?: string | undefined
}

export interface TxnState {
  readonly txn: string
  readonly startTs: Timestamp
  readonly mode: BeginOptions['mode']
  /** `undetermined`: the storage failed during the commit. Committing again finds out the outcome. */
  readonly state: 'open' | 'committing' | 'undetermined' | 'committed' | 'rolled_back'
  readonly writes: number
  readonly expiresInMs: number
}

export class InteractiveTransaction {
  /** The latest request that changes the transaction. Such requests run one after another, in order of arrival. */
  #last: Promise<unknown> = Promise.resolve()
  #running = 0
  #expiresAt = 0
  readonly #timer: NodeJS.Timeout
  /** Views of the scans that may go on with another page, by number, oldest first. */
  readonly #scans = new Map<number, WritesView>()
  #keptScans = 0
  /** Bytes that `InteractiveTransactions` last counted for this transaction. */
  bytes = 0

  constructor(
    readonly id: string,
    readonly txn: Transaction,
    readonly options: BeginOptions,
    /** Interrupts the waits of the transaction. */
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

  get state(): TxnState {
    const { id, txn, options } = this
    const expiresInMs = Math.max(0, Math.ceil(this.#expiresAt - performance.now()))
    return { txn: id, startTs: txn.startTs, mode: options.mode, state: txn.state, writes: txn.writes, expiresInMs }
  }

  /** Restarts the idle timeout. */
  touch(): void {
    this.#expiresAt = performance.now() + this.options.ttlMs
    this.#timer.refresh()
  }

  /** Keeps the transaction from expiring while `body` runs. */
  async during<T>(body: () => Promise<T>): Promise<T> {
    this.#running++
    try {
      return await body()
    } finally {
      this.#running--
      this.touch()
    }
  }

  /** Later pages of the scan see `writes`. @returns the number of the scan, which its cursors carry. */
  keepScan(writes: WritesView): number {
    const number = ++this.#keptScans
    writes.retain()
    this.#scans.set(number, writes)
    return number
  }

  /**
   * @returns the view of a kept scan, which must be released. @throws KvError `invalid_argument` when the scan is forgotten.
   */
  scanned(number: number): WritesView {
    const view = this.#scans.get(number)
    if (view !== undefined) {
      view.retain() // Its page may be under way when the scan is forgotten.
      return view
    }
    throw invalid(
      'cursor',
      `of the scans in this transaction the last ${TXN_SCANS_MAX} can go on: begin this one again`,
    )
  }

  /**
   * Forgets the oldest scans while there are too many or their views hold too much. @returns the bytes that the
   * transaction holds in memory.
   */
  boundScans(bytesMax: number): number {
    for (const [number, writes] of this.#scans) {
      if (this.#scans.size <= TXN_SCANS_MAX && this.txn.viewBytes <= bytesMax) break
      this.#scans.delete(number)
      writes.release()
    }
    return this.txn.heldBytes
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
