import { keyText } from '../../../bytes/key-text.js'
import { inParts } from '../../../coordinator/in-parts.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import type { Timestamp } from '../../../timestamp.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import { Revisions } from '../layout/revisions.js'
import type { Table, TableRow } from '../layout/table.js'
import { TableScan } from '../layout/table-scan.js'
import type { ChunkHead, CommittedTxn, Decision, LogEntry, Outcome } from './log-record.js'
import {
  CHUNKS_RANGE,
  chunkIs,
  chunkRange,
  chunkRow,
  columnsFrom,
  decodeFirst,
  encodeFirst,
  entryWrite,
  HEAD_COLUMNS,
  headWrites,
  idOfChunk,
  idOfLog,
  LOGS_COLUMNS,
  LOGS_RANGE,
  logRow,
  numberOfChunk,
  type ReadChunk,
  readChunk,
  readHead,
} from './log-rows.js'

/** Anybody ends a log whose head has stayed the same for this long. */
const SILENT_MS = 20_000
/** Of chunks that are kept decoded, by the length of their entries in the table. */
const KEPT_BYTES_MAX = 8 * 1024 * 1024
const AT_ONCE = 16

/** All commits above the page before and up to `upTo`. */
export interface LogPage {
  readonly txns: readonly CommittedTxn[]
  readonly upTo: Timestamp
}

interface KnownLog {
  readonly id: string
  /** As in the log's row, when it was read last. */
  first: Buffer
  /** Heads by number, ascending, as they were read last. Only that of the last chunk changes. */
  readonly heads: Map<number, ChunkHead>
  last: number
  /** Of the last chunk, and when it was seen first, by the monotonic clock. */
  revision: Buffer | undefined
  sinceMs: number
  /** The highest commit_ts in it, once it has ended and was read. */
  highest?: Timestamp
}

interface Cursor {
  readonly log: KnownLog
  next: number
  /** No chunk from `next` on has a commit at or below it. */
  closed: Timestamp
}

export interface LogReaderOptions {
  readonly table: Table
  readonly source: Pick<TimestampSource, 'last'>
  /** Ends a transaction at its primary, or a delete_range. @returns its commit_ts; 0: it is rolled back, for good. */
  readonly end: (decision: Omit<Decision, 'number'>) => Promise<Timestamp>
  readonly elapsedMs?: (() => number) | undefined
  readonly silentMs?: number | undefined
}

/** Reads the logs of all servers, ends those that are silent, and knows up to where nothing commits any more. */
export class LogReader {
  readonly #table: Table
  readonly #scan: TableScan
  readonly #source: Pick<TimestampSource, 'last'>
  readonly #end: LogReaderOptions['end']
  readonly #elapsedMs: () => number
  readonly #silentMs: number
  readonly #revisions = new Revisions()
  #logs = new Map<string, KnownLog>()
  readonly #chunks = new Map<string, ReadChunk>()
  #keptBytes = 0
  #resolved: Timestamp = 0
  #polling: Promise<Timestamp> | undefined

  constructor({ table, source, end, elapsedMs = () => performance.now(), silentMs = SILENT_MS }: LogReaderOptions) {
    this.#table = table
    this.#scan = new TableScan(table)
    this.#source = source
    this.#end = end
    this.#elapsedMs = elapsedMs
    this.#silentMs = silentMs
  }

  get resolved(): Timestamp {
    return this.#resolved
  }

  // ---- resolved_ts

  /** Looks at all logs. @returns resolved_ts: all commits at or below it stand in the logs with their outcomes. It never falls. */
  poll(): Promise<Timestamp> {
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = undefined
    })
    return this.#polling
  }

  async #poll(): Promise<Timestamp> {
    for (;;)
      try {
        return await this.#look()
      } catch (error) {
        if (!(error instanceof RemovedLog)) throw error
        this.#logs.delete(error.id) // The next look tells what is left of it.
      }
  }

  async #look(): Promise<Timestamp> {
    // Before the list: a log that it does not show decides nothing at or below this timestamp.
    let resolved = this.#source.last
    await this.#list()
    await this.#readLast()
    for (const log of this.#logs.values()) {
      const head = log.heads.get(log.last)
      // Without a chunk the log was removed: see OpenLog.
      if (head !== undefined && head.state !== 'ended') resolved = Math.min(resolved, head.closed)
    }
    this.#resolved = Math.max(this.#resolved, resolved)
    return this.#resolved
  }

  async #list(): Promise<void> {
    const logs = new Map<string, KnownLog>()
    for await (const rows of this.#scan.rowPages(LOGS_RANGE, LOGS_COLUMNS))
      for (const { key, cells } of rows) {
        const id = idOfLog(key)
        const first = firstIn(cells)
        const known = this.#logs.get(id)
        const isPassed = known !== undefined && known.last < decodeFirst(first)
        const log = known === undefined || isPassed ? await this.#discovered(id, first) : known
        log.first = first
        for (const number of log.heads.keys()) if (number < decodeFirst(first)) log.heads.delete(number)
        logs.set(id, log)
      }
    this.#logs = logs
  }

  async #discovered(id: string, first: Buffer): Promise<KnownLog> {
    const log: KnownLog = { id, first, heads: new Map(), last: decodeFirst(first), revision: undefined, sinceMs: 0 }
    for await (const rows of this.#scan.rowPages(chunkRange(id, log.last), HEAD_COLUMNS))
      for (const row of rows) if (log.heads.size === 0 || stateOf(log) === 'full') this.#note(log, row)
    return log
  }

  /** Reads the heads of chunks that may have changed. */
  async #readLast(): Promise<void> {
    let open = [...this.#logs.values()].filter((log) => log.heads.size > 0 && stateOf(log) !== 'ended')
    while (open.length > 0) {
      const beganMs = this.#elapsedMs()
      // The chunk after a full one is there, unless both were removed.
      const numbers = open.map((log) => (stateOf(log) === 'full' ? log.last + 1 : log.last))
      const keys = open.map(({ id }, i) => chunkRow(id, numbers[i] as number))
      const rows = new Map(
        (await this.#table.rows({ keys, columns: HEAD_COLUMNS })).map((row) => [keyText(row.key), row]),
      )
      const full: KnownLog[] = []
      for (const [i, log] of open.entries()) {
        const row = rows.get(keyText(keys[i] as Buffer))
        if (row === undefined) throw new RemovedLog(log.id)
        this.#note(log, row)
        if (stateOf(log) === 'full') full.push(log)
        else if (beganMs - log.sinceMs >= this.#silentMs) await this.#finish(log)
      }
      open = full
    }
  }

  #note(log: KnownLog, row: TableRow): void {
    const { head, revision } = readHead(row)
    log.last = numberOfChunk(row.key)
    log.heads.set(log.last, head)
    if (log.revision?.equals(revision)) return
    log.revision = revision
    log.sinceMs = this.#elapsedMs()
  }

  // ---- Silent logs

  /**
   * Ends the log, and gives each decision without an outcome the one that its primary tells. A server that goes on meanwhile
   * refuses that, and finds what was rolled back.
   */
  async #finish(log: KnownLog): Promise<void> {
    const last = await this.#chunk(log, log.last)
    if (log.revision?.equals(last.revision) !== true) return
    const open = new Map<number, Decision & { readonly chunk: number }>()
    for (let chunk = last.head.openFrom; chunk <= log.last; chunk++) {
      const { entries } = chunk === log.last ? last : await this.#chunk(log, chunk)
      for (const { decisions } of entries)
        for (const decision of decisions) open.set(decision.number, { ...decision, chunk })
      for (const { outcomes } of entries) for (const { number } of outcomes) open.delete(number)
    }
    const outcomes: Outcome[] = []
    for (const decisions of inParts([...open.values()], AT_ONCE))
      await Promise.all(
        decisions.map(async ({ number, chunk, ...decision }) => {
          const { startTs, commitTs, keys } = decision
          // Whoever has committed it at another timestamp has a decision of its own.
          const isCommitted = (await this.#end(decision)) === commitTs
          const isElsewhere = isCommitted && chunk !== log.last
          outcomes.push({ number, isCommitted, txn: isElsewhere ? { startTs, commitTs, keys } : undefined })
        }),
      )
    // Does not change any more, so it does not matter whose entry stands.
    const entry = entryWrite(last.entries.length, { decisions: [], outcomes })
    const head: ChunkHead = { ...last.head, state: 'ended' }
    const writes = [entry, ...headWrites(head, this.#revisions.next())]
    const row = chunkRow(log.id, log.last)
    const isDone = async (): Promise<boolean> => false
    await certainChange(this.#table, row, chunkIs(last.revision), writes, { isDone })
    // Whether it was this change or that of another server, the row tells.
    const [read] = await this.#table.rows({ keys: [row], columns: HEAD_COLUMNS })
    if (read === undefined) throw new RemovedLog(log.id)
    this.#note(log, read)
  }

  // ---- Entries

  /**
   * @param upTo at or below a resolved_ts that `poll` has returned.
   * @throws RemovedLog: entries above `since` were removed.
   */
  async *pages(since: Timestamp, upTo: Timestamp): AsyncGenerator<LogPage, void> {
    const cursors = [...this.#logs.values()].map((log) => cursorAt(log, since))
    let txns: CommittedTxn[] = []
    for (let position = since; position < upTo; ) {
      const behind = cursors.filter(({ closed }) => closed <= position)
      for (const some of inParts(behind, AT_ONCE))
        for (const txn of (await Promise.all(some.map((cursor) => this.#next(cursor)))).flat())
          if (isWithin(txn.commitTs, position, upTo)) txns.push(txn)
      const reached = Math.min(upTo, ...cursors.map(({ closed }) => closed))
      if (reached <= position) continue
      position = reached
      yield {
        txns: inOrder(txns.filter(({ commitTs }) => commitTs <= reached)),
        upTo: reached,
      }
      txns = txns.filter(({ commitTs }) => commitTs > reached)
    }
  }

  /** What is committed in the cursor's chunk. */
  async #next(cursor: Cursor): Promise<readonly CommittedTxn[]> {
    const { log, next } = cursor
    const { head, entries } = await this.#chunk(log, next)
    cursor.next++
    // What was open when resolved_ts was taken had everything up to there.
    cursor.closed = head.state === 'full' ? head.closed : Number.POSITIVE_INFINITY
    const committed = committedIn(entries)
    if (head.state === 'ended') log.highest = highestOf(head, committed)
    return committed
  }

  async #chunk(log: KnownLog, number: number): Promise<ReadChunk> {
    const name = `${log.id}/${number}`
    const known = this.#chunks.get(name)
    if (known !== undefined && isFinal(known.head)) return known
    const from = known?.entries.length ?? 0
    const [row] = await this.#table.rows({ keys: [chunkRow(log.id, number)], columns: columnsFrom(from) })
    if (row === undefined) throw new RemovedLog(log.id)
    const read = readChunk(row)
    const chunk = {
      ...read,
      entries: [...(known?.entries ?? []), ...read.entries],
      bytes: (known?.bytes ?? 0) + read.bytes,
    }
    this.#forget(name)
    this.#chunks.set(name, chunk)
    this.#keptBytes += chunk.bytes
    for (const oldest of this.#chunks.keys()) {
      if (this.#keptBytes <= KEPT_BYTES_MAX) break
      this.#forget(oldest)
    }
    return chunk
  }

  #forget(name: string): void {
    this.#keptBytes -= this.#chunks.get(name)?.bytes ?? 0
    this.#chunks.delete(name)
  }

  // ---- Collection

  /** Removes chunks whose commits are all at or below `ts`, and logs that have ended. */
  async trim(ts: Timestamp): Promise<void> {
    await this.poll()
    for (const log of [...this.#logs.values()])
      try {
        await this.#trim(log, ts)
      } catch (error) {
        if (!(error instanceof RemovedLog)) throw error // Another collection has removed it.
      }
  }

  async #trim(log: KnownLog, ts: Timestamp): Promise<void> {
    const isOver = log.heads.size === 0 || (stateOf(log) === 'ended' && (await this.#highestIn(log)) <= ts)
    const { openFrom = 0 } = log.heads.get(log.last) ?? {}
    const isOld = (number: number): boolean =>
      number < openFrom && (log.heads.get(number + 1)?.highestBefore ?? ts) <= ts
    const old = [...log.heads.keys()].filter((number) => isOver || (number < log.last && isOld(number)))
    if (old.length === 0 && !isOver) return
    // The server may have died before it went on to a next chunk, which stands already.
    const keys = (isOver ? [...old, log.last + 1] : old).map((number) => chunkRow(log.id, number))
    const rows = await this.#table.rows({ keys, columns: HEAD_COLUMNS })
    // The log's own row first: what of a removed chunk lands late must not be taken for a part of the log.
    const column = { family: 'o', qualifier: RECORD } as const
    const next = isOver ? 'remove' : [{ ...column, value: encodeFirst(Math.max(...old) + 1) }]
    if ((await this.#table.change(logRow(log.id), { ...column, value: log.first }, next)) !== 'done') return
    for (const row of rows) await this.#table.change(row.key, chunkIs(readHead(row).revision), 'remove')
  }

  /**
   * Removes chunks that no log's row leads to: the collection that removed the row, or the server that was to write it, has died
   * or stood still. A server that begins a log meanwhile is refused, and begins another.
   */
  async sweep(): Promise<void> {
    for await (const rows of this.#scan.rowPages(CHUNKS_RANGE, HEAD_COLUMNS)) {
      if (rows.length === 0) continue
      // Read after the chunks: the row of a log stands before anything is appended to its first one.
      const ids = [...new Set(rows.map(({ key }) => idOfChunk(key)))]
      const logs = await this.#table.rows({ keys: ids.map(logRow), columns: LOGS_COLUMNS })
      const firsts = new Map(logs.map(({ key, cells }) => [idOfLog(key), firstIn(cells)]))
      for (const row of rows) {
        const first = firsts.get(idOfChunk(row.key))
        if (first === undefined || numberOfChunk(row.key) < decodeFirst(first))
          await this.#table.change(row.key, chunkIs(readHead(row).revision), 'remove')
      }
    }
  }

  async #highestIn(log: KnownLog): Promise<Timestamp> {
    const { head, entries } = await this.#chunk(log, log.last)
    return highestOf(head, committedIn(entries))
  }
}

/** What a reader knew of a log was removed by a collection: it has to begin anew, at or above the safe point. */
export class RemovedLog extends Error {
  constructor(readonly id: string) {
    super(`the log ${id} was removed`)
  }
}

function stateOf(log: KnownLog): ChunkHead['state'] | undefined {
  return log.heads.get(log.last)?.state
}

function firstIn(cells: TableRow['cells']): Buffer {
  return cells[0]?.value ?? encodeFirst(0)
}

function isFinal({ state }: ChunkHead): boolean {
  return state === 'full' || state === 'ended'
}

/** At the first chunk with a commit above `since`. */
function cursorAt(log: KnownLog, since: Timestamp): Cursor {
  if (log.highest !== undefined && log.highest <= since) return { log, next: 0, closed: Number.POSITIVE_INFINITY }
  let next = log.last
  for (const [number, { highestBefore }] of log.heads)
    if (highestBefore > since) {
      next = number - 1
      if (!log.heads.has(next)) throw new RemovedLog(log.id)
      break
    }
  return { log, next, closed: log.heads.size === 0 ? Number.POSITIVE_INFINITY : since }
}

/** @param entries of one chunk. */
function committedIn(entries: readonly LogEntry[]): CommittedTxn[] {
  const decided = new Map<number, CommittedTxn>()
  for (const { decisions } of entries)
    for (const { number, startTs, commitTs, keys } of decisions) decided.set(number, { startTs, commitTs, keys })
  const outcomes = entries.flatMap((entry) => entry.outcomes.filter(({ isCommitted }) => isCommitted))
  return outcomes.map(({ number, txn = decided.get(number) }) => {
    if (txn === undefined) throw new CorruptRecord('an outcome in a log has no decision')
    return txn
  })
}

/** @param committed in the chunk with the head. */
function highestOf({ highestBefore }: ChunkHead, committed: readonly CommittedTxn[]): Timestamp {
  return committed.reduce((max, { commitTs }) => Math.max(max, commitTs), highestBefore)
}

function isWithin(ts: Timestamp, above: Timestamp, upTo: Timestamp): boolean {
  return ts > above && ts <= upTo
}

/** By commit_ts. Two servers may have decided the same commit. */
function inOrder(txns: readonly CommittedTxn[]): CommittedTxn[] {
  const byTxn = new Map<string, CommittedTxn>()
  for (const txn of txns) {
    const name = `${txn.commitTs}/${txn.startTs}`
    const known = byTxn.get(name)
    byTxn.set(name, known === undefined ? txn : { ...txn, keys: distinct([...known.keys, ...txn.keys]) })
  }
  return [...byTxn.values()].sort((a, b) => a.commitTs - b.commitTs || a.startTs - b.startTs)
}

function distinct(keys: readonly Uint8Array[]): Uint8Array[] {
  return [...new Map(keys.map((key) => [keyText(key), key])).values()]
}
