import { randomBytes } from 'node:crypto'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { Timestamp } from '../../../timestamp.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import type { Revisions } from '../layout/revisions.js'
import type { ColumnWrite, Expected, Table } from '../layout/table.js'
import { type ChunkHead, type Decision, keyBytes, type Outcome } from './log-record.js'
import { chunkIs, chunkRow, encodeFirst, entryWrite, HEAD_COLUMNS, headWrites, logRow, readHead } from './log-rows.js'

const ID_BYTES = 8
/** Least time between the beginnings of two appends: what is decided meanwhile shares one. */
const APPEND_MS = 20
const CHUNK_ENTRIES_MAX = 256
const CHUNK_BYTES_MAX = 64 * 1024
/** Of keys in an append, if it has more than one transaction: a cell of the table has a bound. */
const APPEND_BYTES_MAX = 1024 * 1024

export interface OpenDecision extends Decision {
  /** Where it stands. */
  chunk?: number
}

interface Settled {
  readonly decision: OpenDecision
  readonly isCommitted: boolean
}

interface Waiting {
  /** Absent for a beat, which waits until all that was given to the log before it is written. */
  readonly decision?: OpenDecision | undefined
  readonly fulfil: () => void
  readonly reject: (error: unknown) => void
}

interface Queue {
  readonly outcomes: Settled[]
  readonly waiting: Waiting[]
}

/** The log is ended, or given up after a lost answer: what had to be appended belongs into another one. */
export const OVER = new Error('the log is over')

export interface OpenLogOptions {
  readonly table: Table
  readonly revisions: Revisions
  readonly pause: (ms: number) => Promise<void>
  readonly elapsedMs: () => number
  readonly chunkEntriesMax?: number | undefined
  readonly onClosed?: (() => void) | undefined
}

/**
 * A log while its server appends to it, one append at a time. Each is on the condition of the revision that the one before has
 * given the chunk, so nothing is appended once another server has ended it. A new chunk stands before its predecessor is full,
 * and the first one before the log's own row: a chunk that is gone was removed, and never comes back.
 */
export class OpenLog {
  readonly id = randomBytes(ID_BYTES).toString('hex')
  /** The next append closes the log up to here, or to below the lowest decision that lacks its outcome. */
  closable: Timestamp = 0
  readonly #options: OpenLogOptions
  readonly #entriesMax: number
  readonly #open = new Set<Pick<OpenDecision, 'commitTs' | 'chunk'>>()
  readonly #queue: Queue = { outcomes: [], waiting: [] }
  #appending: Promise<void> | undefined
  #beganMs = Number.NEGATIVE_INFINITY
  #isOver = false
  /** The highest `closed` that was or may have been written. */
  #closed: Timestamp = 0
  /** The highest commit_ts in the log. */
  #highest: Timestamp = 0
  #revision: Buffer | undefined
  #chunk = 0
  #next = 0
  #bytes = 0
  #highestBefore: Timestamp = 0
  #openFrom = 0

  private constructor(options: OpenLogOptions) {
    this.#options = options
    this.#entriesMax = options.chunkEntriesMax ?? CHUNK_ENTRIES_MAX
  }

  /**
   * A timestamp is taken once the rows stand: whoever has not seen them has taken what it takes for closed before this timestamp
   * was handed out.
   * @throws KvError `storage_unavailable`
   */
  static async begin(source: Pick<TimestampSource, 'last' | 'next'>, options: OpenLogOptions): Promise<OpenLog> {
    const log = new OpenLog(options)
    log.#closed = source.last // Readers need not wait for the first append.
    log.#revision = await log.#beginChunk(0)
    const absent = { family: 'o', qualifier: RECORD, value: undefined } as const
    // The id is random, so nobody else writes this row.
    const isDone = async (): Promise<boolean> => true
    await certainChange(options.table, logRow(log.id), absent, [{ ...absent, value: encodeFirst(0) }], { isDone })
    log.#closed = await source.next()
    log.closable = log.#closed
    return log
  }

  get closed(): Timestamp {
    return this.#closed
  }
  get isOver(): boolean {
    return this.#isOver
  }
  /** No decision lacks its outcome, and nothing is left to write. */
  get isIdle(): boolean {
    return this.#open.size === 0 && this.#appending === undefined && this.#queue.outcomes.length === 0
  }

  /** Keeps the log from closing the commit_ts. @returns a function that ends that. */
  hold(commitTs: Timestamp): () => void {
    const held = { commitTs }
    this.#open.add(held)
    return () => void this.#open.delete(held)
  }

  /** @throws OVER: it stands nowhere, or is settled by whoever ends the log; KvError `storage_unavailable`: it may stand. */
  decide(decision: OpenDecision): Promise<void> {
    this.#open.add(decision)
    return this.appended(decision)
  }

  /** Is written with a later append, at the next beat. */
  settle(decision: OpenDecision, isCommitted: boolean): void {
    this.#queue.outcomes.push({ decision, isCommitted })
  }

  /** Fulfilled when the decision, or all that was given to the log, is in the table. @throws as `decide` */
  appended(decision?: OpenDecision): Promise<void> {
    return new Promise((fulfil, reject) => {
      if (this.#isOver) return reject(OVER)
      this.#queue.waiting.push({ decision, fulfil, reject })
      this.#appending ??= this.#appendAll().finally(() => {
        this.#appending = undefined
      })
    })
  }

  /** Ends the log where every decision has its outcome. A reader ends it otherwise. */
  async end(): Promise<void> {
    while (this.#appending !== undefined) await this.#appending
    if (this.#isOver) return
    const { outcomes } = this.#queue
    const bytes = outcomes.reduce((sum, one) => sum + this.#bytesOf(one), 0)
    const isWhole = outcomes.length === this.#open.size && bytes <= APPEND_BYTES_MAX
    const appended = isWhole ? this.#append('ended') : undefined
    this.#isOver = true
    await appended
  }

  async #appendAll(): Promise<void> {
    while (this.#queue.waiting.length > 0 && !this.#isOver) {
      const restMs = this.#beganMs + APPEND_MS - this.#options.elapsedMs()
      if (restMs > 0) await this.#options.pause(restMs)
      this.#beganMs = this.#options.elapsedMs()
      await this.#append('open')
    }
  }

  /** Takes from the queue what fits into an append, which is one transaction at least. */
  #taken(): Queue {
    let bytes = 0
    const fitting = <T>(all: T[], bytesOf: (one: T) => number): T[] => {
      let count = 0
      for (; count < all.length; count++) {
        const more = bytesOf(all[count] as T)
        if (bytes > 0 && bytes + more > APPEND_BYTES_MAX) break
        bytes += more
      }
      return all.splice(0, count)
    }
    const outcomes = fitting(this.#queue.outcomes, (one) => this.#bytesOf(one))
    const waiting = fitting(this.#queue.waiting, ({ decision }) => (decision ? keyBytes(decision) : 0))
    return { outcomes, waiting }
  }

  #bytesOf({ decision, isCommitted }: Settled): number {
    return isCommitted && decision.chunk !== this.#chunk ? keyBytes(decision) : 0
  }

  async #append(state: 'open' | 'ended'): Promise<void> {
    const { outcomes, waiting } = this.#taken()
    const decisions = waiting.flatMap(({ decision }) => (decision === undefined ? [] : [decision]))
    for (const decision of decisions) decision.chunk = this.#chunk
    for (const { decision, isCommitted } of outcomes) {
      this.#open.delete(decision)
      if (isCommitted) this.#highest = Math.max(this.#highest, decision.commitTs)
    }
    let closable = this.closable
    for (const { commitTs } of this.#open) closable = Math.min(closable, commitTs - 1)
    const closesMore = closable > this.#closed
    this.#closed = Math.max(this.#closed, closable)
    const writes: ColumnWrite[] = []
    if (decisions.length + outcomes.length > 0) {
      const told = outcomes.map(({ decision, isCommitted }) => outcomeOf(decision, isCommitted, this.#chunk))
      const write = entryWrite(this.#next, { decisions, outcomes: told })
      writes.push(write)
      this.#next++
      this.#bytes += write.value.length
    }
    const isFull = state === 'open' && (this.#next >= this.#entriesMax || this.#bytes >= CHUNK_BYTES_MAX)
    try {
      if (isFull) await this.#fill(writes)
      else this.#revision = await this.#change(this.#chunk, chunkIs(this.#revision), writes, this.#headWith(state))
      for (const { fulfil } of waiting) fulfil()
      if (closesMore) this.#options.onClosed?.()
    } catch (error) {
      this.#isOver = true
      for (const { reject } of waiting) reject(error)
      for (const { reject } of this.#queue.waiting.splice(0)) reject(OVER)
    }
  }

  async #fill(writes: readonly ColumnWrite[]): Promise<void> {
    const present = this.#headWith('full')
    const chunk = this.#chunk
    this.#highestBefore = this.#highest
    this.#openFrom = chunk + 1
    for (const { chunk: own = chunk } of this.#open) this.#openFrom = Math.min(this.#openFrom, own)
    const following = await this.#beginChunk(chunk + 1)
    await this.#change(chunk, chunkIs(this.#revision), writes, present)
    this.#chunk = chunk + 1
    this.#revision = following
    this.#next = 0
    this.#bytes = 0
  }

  #beginChunk(chunk: number): Promise<Buffer> {
    return this.#change(chunk, chunkIs(undefined), [], this.#headWith('open'))
  }

  #headWith(state: ChunkHead['state']): ChunkHead {
    return { state, closed: this.#closed, highestBefore: this.#highestBefore, openFrom: this.#openFrom }
  }

  /** @returns the new revision. @throws OVER when another server has changed the chunk; KvError `storage_unavailable` */
  async #change(chunk: number, expected: Expected, writes: readonly ColumnWrite[], head: ChunkHead): Promise<Buffer> {
    const { table, revisions } = this.#options
    const row = chunkRow(this.id, chunk)
    const revision = revisions.next()
    const isDone = async (): Promise<boolean> => {
      const [found] = await table.rows({ keys: [row], columns: HEAD_COLUMNS })
      return found !== undefined && readHead(found).revision.equals(revision)
    }
    const all = [...writes, ...headWrites(head, revision)]
    // It is refused, too, if a copy of it has come first.
    if ((await certainChange(table, row, expected, all, { isDone })) || (await isDone())) return revision
    throw OVER
  }
}

function outcomeOf(
  { number, startTs, commitTs, keys, chunk }: OpenDecision,
  isCommitted: boolean,
  present: number,
): Outcome {
  return { number, isCommitted, txn: isCommitted && chunk !== present ? { startTs, commitTs, keys } : undefined }
}
