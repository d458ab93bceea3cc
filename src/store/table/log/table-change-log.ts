import { keyText } from '../../../bytes/key-text.js'
import { ChangeFilter } from '../../../changes/rules/change-filter.js'
import { KvError } from '../../../errors/kv-error.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import {
  type Change,
  compareChanges,
  type ExpiryChange,
  type KeyChange,
  type LoggedChange,
} from '../../../percolator/change.js'
import { belowSafePoint } from '../../../percolator/errors.js'
import type { Lock } from '../../../percolator/lock.js'
import type { WriteRecord } from '../../../percolator/write.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import type { ChangeLog, ChangePage, ChangesRequest } from '../../change-log.js'
import { type Portion, WithExpiries } from '../../with-expiries.js'
import { FEED_FORMAT } from '../format/format-row.js'
import { atOrBelow, between, decodeCells, LOCK_COLUMN, type RowCells, valueColumn, valuesIn } from '../layout/layout.js'
import { keyOfRow, rowKeyOf } from '../layout/row-keys.js'
import type { ColumnRange, Table, TableRow } from '../layout/table.js'
import type { WakeUps } from '../layout/wake-ups.js'
import type { DecisionsOptions } from './decisions.js'
import type { ExpiryRow, ExpiryRows } from './expiry-rows.js'
import type { FeedRow } from './feed-row.js'
import { type LogReader, RemovedLog } from './log-reader.js'
import { type CommittedTxn, removedBy } from './log-record.js'
import { CLOSED } from './server-log.js'

/** Rows that are read together. Each has values of up to 4 KiB. */
const KEYS_AT_ONCE = 256
/** A page ends early with the value that reaches this many bytes. */
const PAGE_BYTES = 1024 * 1024
const LONG_VALUES_MAX = 32
/** Least time between the beginnings of two looks at the logs, */
const LOOK_MS = 250
/** and where a log was told to have closed more. */
const TOLD_LOOK_MS = 50
/** A timestamp that another server may have resolved is waited for as long as so many looks take by themselves. */
const LOOKS = 4

export interface TableChangeLogOptions {
  readonly table: Table
  readonly source: Pick<TimestampSource, 'last' | 'next'>
  readonly feed: FeedRow
  readonly reader: LogReader
  readonly expiries: Pick<ExpiryRows, 'pages'>
  /** `fresh`: await after rows were read, and before any conclusion from them. */
  readonly safePoint: { readonly value: Timestamp; readonly fresh: () => undefined | Promise<void> }
  /** In which rows are written at the moment, and that of the table, which this server may have seen just now. */
  readonly format: () => number
  readonly seenFormat: () => number
  readonly look: DecisionsOptions['look']
  readonly wakeUps: Pick<WakeUps, 'listenAWhile'>
  /** For tests. */
  readonly lookMs?: number | undefined
}

type Valueless = KeyChange & { readonly type: 'put'; readonly value?: undefined }

/** What a row tells of a change. */
type Version = Pick<WriteRecord, 'startTs' | 'commitTs' | 'expireTs' | 'shortValue'> & { readonly type: string }

/** @returns the commit_ts on record of the transaction that holds the lock on the key; 0: it has none. */
type CommitTsOf = (key: Uint8Array, lock: Pick<Lock, 'primary' | 'startTs'>) => Promise<Timestamp>

/** The changes of all servers, from their logs, with the values of the rows. */
export class TableChangeLog implements ChangeLog {
  readonly prompt = undefined
  readonly #options: TableChangeLogOptions
  #hasBegun = false
  #looking: Promise<Timestamp> | undefined
  #lookedMs = Number.NEGATIVE_INFINITY
  /** Aborted when a log has closed more since the last look. */
  #told = new AbortController()

  constructor(options: TableChangeLogOptions) {
    this.#options = options
  }

  get start(): Timestamp {
    const { feed, safePoint } = this.#options
    return Math.max(feed.since ?? 0, safePoint.value)
  }

  async begin(): Promise<void> {
    if (this.#hasBegun) return
    const { feed, source } = this.#options
    await feed.look()
    // Whoever has begun it knew that all servers log.
    if (feed.since === undefined || feed.since === 0) await this.#requireFormat()
    const since = await feed.begin(() => source.next())
    for (let now = await source.next(); now <= since; now = await source.next())
      await sleep(physicalMs(since) - physicalMs(now) + 1)
    this.#hasBegun = true
  }

  /** Waits until servers that need not log are gone. @throws KvError `not_supported` */
  async #requireFormat(): Promise<void> {
    const { format, seenFormat } = this.#options
    const seen = seenFormat()
    if (seen < FEED_FORMAT) {
      const detail = `the table has format ${seen}, in which servers need not log their commits: run perkv store upgrade`
      throw new KvError('not_supported', detail, {})
    }
    while (format() < FEED_FORMAT) await sleep(LOOK_MS)
  }

  // ---- resolved_ts

  async resolve(wanted?: Timestamp): Promise<Timestamp> {
    const { reader, lookMs = LOOK_MS } = this.#options
    if (wanted === undefined) return this.#shared()
    const endMs = performance.now() + LOOKS * lookMs
    // A look that is under way may have begun before anybody knew of the timestamp, and a log that has begun since another server
    // resolved it tells up to where it is closed with its first append only.
    for (let looks = 0; reader.resolved < wanted && (looks < 2 || performance.now() < endMs); looks++)
      await this.#shared()
    return reader.resolved
  }

  /** Callers share a look, and the time until it may begin. */
  #shared(): Promise<Timestamp> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #look(): Promise<Timestamp> {
    const { source, reader, lookMs = LOOK_MS, wakeUps } = this.#options
    wakeUps.listenAWhile(CLOSED, () => this.#told.abort())
    const rest = async (ms: number, signal?: AbortSignal): Promise<void> => {
      const restMs = this.#lookedMs + ms - performance.now()
      if (restMs > 0) await sleep(restMs, signal)
    }
    await rest(Math.min(TOLD_LOOK_MS, lookMs))
    await rest(lookMs, this.#told.signal).catch(() => {})
    this.#told = new AbortController()
    this.#lookedMs = performance.now()
    await source.next()
    return reader.poll()
  }

  /** Nobody knows the locks of all servers. */
  heldBackBy(): readonly [] {
    return []
  }

  // ---- Reading

  async *read(request: ChangesRequest): AsyncGenerator<ChangePage, void> {
    let position = request.since
    let last: Change | undefined
    await this.#requireLogged(position)
    for (;;)
      try {
        for await (const page of this.#pages({ ...request, since: position })) {
          if (request.signal?.aborted) return
          const { changes } = page
          const isAgain = last !== undefined && changes.some((change) => compareChanges(change, last as Change) <= 0)
          const others = isAgain ? changes.filter((change) => compareChanges(change, last as Change) > 0) : changes
          await this.#requireLogged(position)
          position = Math.max(position, page.upTo)
          last = others.at(-1) ?? last
          yield { changes: others, upTo: position }
          if (request.signal?.aborted) return
        }
        return
      } catch (error) {
        if (!(error instanceof RemovedLog)) throw error
        await this.#requireLogged(position)
        await this.#options.reader.poll() // It had nothing above the position, and is gone from the list now.
      }
  }

  async *#pages({ since, upTo, ranges, keysOnly = false }: ChangesRequest): AsyncGenerator<ChangePage, void> {
    const filter = new ChangeFilter(ranges)
    const expiries = new WithExpiries(this.#expiries(since, upTo, filter))
    try {
      for await (const { changes, upTo: passed } of this.#portions(since, upTo, filter, expiries)) {
        let from = 0
        do {
          const some = changes.slice(from, from + KEYS_AT_ONCE)
          const filled = keysOnly ? { changes: some.map(withoutValue), used: some.length } : await this.#filled(some)
          from += filled.used
          yield { changes: filled.changes, upTo: (changes[from]?.commitTs ?? passed + 1) - 1 }
        } while (from < changes.length)
      }
    } finally {
      await expiries.close()
    }
  }

  /** All changes, without long values, in order. No other change is at or below `upTo` of a portion. */
  async *#portions(
    since: Timestamp,
    upTo: Timestamp,
    filter: ChangeFilter,
    expiries: WithExpiries,
  ): AsyncGenerator<Portion, void> {
    let late: ExpiryChange[] = []
    for await (const page of this.#options.reader.pages(since, upTo)) {
      const logged = page.txns.flatMap(changesOf).filter((change) => filter.has(change))
      logged.sort(compareChanges)
      let from = 0
      do {
        const found = await this.#found(logged.slice(from, from + KEYS_AT_ONCE))
        from += KEYS_AT_ONCE
        const passed = (logged[from]?.commitTs ?? page.upTo + 1) - 1
        late.push(...found.flatMap(lateExpiry))
        const due = late.filter(({ commitTs }) => commitTs <= passed)
        late = late.filter(({ commitTs }) => commitTs > passed)
        yield* expiries.merged(due.length === 0 ? found : [...found, ...due].sort(compareChanges), passed)
      } while (from < logged.length)
    }
  }

  async *withValues(changes: readonly Change[]): AsyncGenerator<readonly Change[], void> {
    for (let from = 0; from < changes.length; from += KEYS_AT_ONCE) {
      const some = changes.slice(from, from + KEYS_AT_ONCE)
      const found = await this.#found(some)
      let count = 0
      for (let at = 0; at < found.length; ) {
        const filled = await this.#filled(found.slice(at))
        at += filled.used
        count += filled.changes.length
        yield filled.changes
      }
      const first = Math.min(...some.map(({ commitTs }) => commitTs))
      if (count < some.length) await this.#requireLogged(first - 1)
    }
  }

  /** @throws KvError `ts_below_safe_point` */
  async #requireLogged(since: Timestamp): Promise<void> {
    await this.#options.safePoint.fresh()
    if (since < this.start) throw belowSafePoint(since, this.start)
  }

  // ---- Rows

  /**
   * Asks the rows what the logs do not tell: whether a key was put or deleted, and short values. Leaves out keys that were only
   * locked, and versions that a delete_range or a collection has removed.
   */
  async #found<C extends Change>(changes: readonly C[]): Promise<(C | KeyChange)[]> {
    const asked = changes.filter(lacksValue)
    if (asked.length === 0) return [...changes]
    const times = asked.map(({ commitTs }) => commitTs)
    // All versions of the keys between the two are among the changes, if those are all that were made.
    const versions = between('w', Math.min(...times), Math.max(...times))
    const rows = await this.#rowsOf(asked, [LOCK_COLUMN, versions])
    const commitTsOf = this.#commits()
    const found = await Promise.all(
      changes.map(async (change): Promise<readonly (C | KeyChange)[]> => {
        if (!lacksValue(change)) return [change]
        const { key, commitTs, startTs } = change
        const row = rows.get(keyText(key))
        const version = row && (await versionOf(decodeCells(row.cells), change, commitTsOf))
        if (version?.type === 'delete') return [{ type: 'delete', key, commitTs, startTs }]
        if (version?.type !== 'put') return []
        const { shortValue: value, expireTs } = version
        return [{ type: 'put', key, commitTs, startTs, value, expireTs: expireTs === 0 ? undefined : expireTs }]
      }),
    )
    return found.flat()
  }

  /** Asks each primary once. */
  #commits(): CommitTsOf {
    const { look } = this.#options
    const asked = new Map<string, Promise<Timestamp>>()
    return async (key, { primary, startTs }) => {
      const txn = `${startTs} ${keyText(primary)}`
      const asking = asked.get(txn) ?? look([primary], startTs)
      asked.set(txn, asking)
      // Since the lock was read, a delete_range may have made a record of it, and then removed that of the primary.
      return (await asking) || look([key], startTs)
    }
  }

  /** Adds long values, up to about `PAGE_BYTES` in all. Leaves out puts whose values are gone. @returns the first `used` changes. */
  async #filled(changes: readonly Change[]): Promise<{ readonly changes: Change[]; readonly used: number }> {
    const filled: Change[] = []
    let bytes = 0
    let [long, longBytes] = [0, 0]
    let values = new Map<Change, Uint8Array | undefined>()
    for (const [i, change] of changes.entries()) {
      if (bytes >= PAGE_BYTES && !values.has(change)) return { changes: filled, used: i }
      if (!lacksValue(change)) {
        filled.push(change)
        if (change.type === 'put') bytes += change.value?.length ?? 0
        continue
      }
      if (!values.has(change)) {
        const fitting = long === 0 ? 1 : Math.ceil(((PAGE_BYTES - bytes) * long) / longBytes)
        const next = changes.slice(i).filter(lacksValue)
        values = await this.#longValues(next.slice(0, Math.min(fitting, LONG_VALUES_MAX)))
      }
      const value = values.get(change)
      if (value === undefined) continue
      filled.push({ ...change, value })
      long++
      longBytes += value.length
      bytes += value.length
    }
    return { changes: filled, used: changes.length }
  }

  async #longValues(puts: readonly KeyChange[]): Promise<Map<Change, Uint8Array | undefined>> {
    const columns = [...new Set(puts.map(({ startTs }) => startTs))].map(valueColumn)
    const rows = await this.#rowsOf(puts, columns)
    return new Map(
      puts.map((put): [Change, Uint8Array | undefined] => {
        const values = valuesIn(rows.get(keyText(put.key))?.cells ?? [])
        return [put, values.find(({ startTs }) => startTs === put.startTs)?.value]
      }),
    )
  }

  /** By the text of the key. */
  async #rowsOf(
    items: readonly { readonly key: Uint8Array }[],
    columns: readonly ColumnRange[],
  ): Promise<ReadonlyMap<string, TableRow>> {
    const keys = [...new Map(items.map(({ key }) => [keyText(key), rowKeyOf(key)])).values()]
    const rows = await this.#options.table.rows({ keys, columns })
    return new Map(rows.map((row) => [keyText(keyOfRow(row.key)), row]))
  }

  // ---- Expiries

  async *#expiries(
    since: Timestamp,
    upTo: Timestamp,
    filter: ChangeFilter,
  ): AsyncGenerator<readonly ExpiryChange[], void> {
    for await (const page of this.#options.expiries.pages(since, upTo)) {
      const expired = await this.#expired(page.filter(({ key }) => filter.hasKey(key)))
      if (expired.length > 0) yield expired
    }
  }

  /** A version has expired if it is the newest one by then. What had expired before its commit is found in the logs. */
  async #expired(rows: readonly ExpiryRow[]): Promise<ExpiryChange[]> {
    const [first] = rows
    const last = rows.at(-1)
    if (first === undefined || last === undefined) return []
    const columns = [LOCK_COLUMN, between('w', first.ts, last.ts), atOrBelow('w', first.ts)]
    const found = await this.#rowsOf(rows, columns)
    const commitTsOf = this.#commits()
    const expired = await Promise.all(
      rows.map(async ({ ts, key }): Promise<ExpiryChange | undefined> => {
        const row = found.get(keyText(key))
        const version = row && (await newestAt(ts, key, decodeCells(row.cells), commitTsOf))
        if (version?.type !== 'put' || version.expireTs !== ts || version.commitTs >= ts) return undefined
        const { commitTs, startTs } = version
        return { type: 'expire', key, commitTs: ts, startTs: ts, expireTs: ts, version: { commitTs, startTs } }
      }),
    )
    return expired.filter((change) => change !== undefined)
  }
}

function changesOf(txn: CommittedTxn): LoggedChange[] {
  const { startTs, commitTs, keys } = txn
  const range = removedBy(txn)
  if (range !== undefined) return [{ type: 'delete_range', key: range.start, end: range.end, commitTs, startTs }]
  return keys.map((key) => ({ type: 'put', key, commitTs, startTs }))
}

function lacksValue(change: Change): change is Valueless {
  return change.type === 'put' && change.value === undefined
}

function withoutValue(change: Change): Change {
  if (change.type !== 'put') return change
  const { type, key, commitTs, startTs } = change
  return { type, key, commitTs, startTs }
}

/**
 * A secondary may still have its lock, which becomes the record. Another transaction may have the same start_ts, so the primary of
 * the lock tells.
 */
async function versionOf(
  { lock, writes }: RowCells,
  { key, startTs, commitTs }: KeyChange,
  commitTsOf: CommitTsOf,
): Promise<Omit<Version, 'commitTs'> | undefined> {
  const record = writes.find((write) => write.startTs === startTs && write.commitTs === commitTs)
  if (record !== undefined || lock?.startTs !== startTs) return record
  return (await commitTsOf(key, lock)) === commitTs ? lock : undefined
}

/** @param ts at or below resolved_ts: a transaction that commits at or below it has its record at the primary. */
async function newestAt(
  ts: Timestamp,
  key: Uint8Array,
  { lock, writes }: RowCells,
  commitTsOf: CommitTsOf,
): Promise<Version | undefined> {
  const newest = writes.find(({ commitTs }) => commitTs <= ts)
  if (lock === undefined || lock.startTs >= ts || (lock.type !== 'put' && lock.type !== 'delete')) return newest
  const commitTs = await commitTsOf(key, lock)
  return commitTs > (newest?.commitTs ?? 0) && commitTs <= ts ? { ...lock, commitTs } : newest
}

function lateExpiry(change: Change): ExpiryChange[] {
  if (change.type !== 'put' || change.expireTs === undefined || change.expireTs > change.commitTs) return []
  const { key, commitTs, startTs, expireTs } = change
  return [{ type: 'expire', key, commitTs, startTs: commitTs, expireTs, version: { commitTs, startTs } }]
}
