import { randomBytes } from 'node:crypto'
import { pairBytes } from '../../../bytes/answer-size.js'
import { Backoff } from '../../../coordinator/backoff.js'
import { inParts } from '../../../coordinator/in-parts.js'
import { invalid, KvError } from '../../../errors/kv-error.js'
import { printKey } from '../../../errors/print-key.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { ValuedPair } from '../../../percolator/api.js'
import type { Mutation } from '../../../percolator/row.js'
import { isData } from '../../../percolator/write.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import type { RestoreProgress, RestoreSource, Upkeep } from '../../store.js'
import { decodeCells, REVISION, REVISION_COLUMN, writesOf } from '../layout/layout.js'
import { keyOfRow, rowKeyOf, rowRangeOf } from '../layout/row-keys.js'
import type { ColumnRange, ColumnWrite, Table, TableRow } from '../layout/table.js'
import { TableScan } from '../layout/table-scan.js'
import type { RestoreRecord, RestoreRun } from './restore-row.js'
import type { RestoreWatch } from './restore-watch.js'

const ID_BYTES = 16
const RESTORED_BYTES = 2 * ID_BYTES
const NOTHING = Buffer.alloc(0)
/** Of one block, written at the same time. */
const ROWS_AT_ONCE = 64
/** Of one row. Together they take some ten seconds. */
const TRIES_MAX = 20
/** A backup whose ts is further ahead of the timestamps is refused: nobody could lead whose clock is behind it. */
const AHEAD_MS_MAX = 10_000
/** What makes a row more than a revision, the newest of each. */
const ANY_RECORD: readonly ColumnRange[] = [
  { family: 'l' },
  { family: 'w', limit: 1 },
  { family: 'r', limit: 1 },
  { family: 'd', limit: 1 },
]

/**
 * Fills an empty table with the pairs of a backup. A marker in the row `restore` keeps all servers of the table, this one too, from
 * rows of users meanwhile.
 *
 * The revision of a restored row is the id of the backup and the holder of the marker, and longer than that of any other row. So a
 * row that another server has changed is told apart, a row that is there already is known, and what is removed for another restore is
 * no more than what restores have written.
 */
export class TableRestoration {
  readonly #table: Table
  readonly #scan: TableScan
  readonly #restores: RestoreWatch
  readonly #oracle: Pick<TimestampSource, 'next'>
  readonly #shortValueBytesMax: number
  #isRunning = false

  /** @param table without a guard. */
  constructor(table: Table, restores: RestoreWatch, oracle: Pick<TimestampSource, 'next'>, shortValueBytesMax: number) {
    this.#table = table
    this.#scan = new TableScan(table)
    this.#restores = restores
    this.#oracle = oracle
    this.#shortValueBytesMax = shortValueBytesMax
  }

  async restore(
    source: RestoreSource,
    blocks: Parameters<Upkeep['restore']>[1],
    isAnew: boolean,
  ): Promise<RestoreProgress> {
    if (this.#isRunning) throw new KvError('storage_unavailable', 'another restore is running', {})
    this.#isRunning = true
    let record: RestoreRecord | undefined
    let writing: Promise<RestoreRecord> | undefined
    try {
      for await (const pairs of blocks) {
        // The next block is read and verified while this one is written.
        record = (await writing) ?? record ?? (await this.#begin(source, isAnew))
        writing = this.#put(pairs, record)
        writing.catch(() => {}) // Awaited with the next block or after the loop.
      }
      return await this.#complete((await writing) ?? (await this.#begin(source, isAnew)))
    } finally {
      await writing?.catch(() => {})
      this.#isRunning = false
    }
  }

  /**
   * Takes the marker, and waits until every other server has seen it: those that serve, and one that was restoring.
   * @returns a record whose `run` is of this restore.
   */
  async #begin(source: RestoreSource, isAnew: boolean): Promise<RestoreRecord> {
    await this.#passBy(source.ts)
    const before = await this.#restores.refresh()
    const left = before.run
    const fresh = { ...source, lastKey: undefined, pairs: 0, bytes: 0, isRemoval: false }
    const isOther = left !== undefined && left.id !== source.id
    if (left === undefined)
      await this.#requireEmpty() // A restore that is refused disturbs nobody.
    else if (isOther && !isAnew && !left.isRemoval && left.lastKey !== undefined) throw leftOver(left)
    // Before its first block is stored it is not known that the table was empty.
    const isRemoval = left !== undefined && (isAnew || isOther || left.isRemoval || left.lastKey === undefined)
    const holder = randomBytes(ID_BYTES).toString('hex')
    const { safePoint } = before
    const taken = await this.#restores.change(before, { safePoint, run: { ...(left ?? fresh), isRemoval, holder } })
    await sleep(this.#restores.quietMs)
    if (left !== undefined && !isRemoval) return taken
    if (isRemoval) await this.#removeAll()
    try {
      await this.#requireEmpty()
    } catch (error) {
      await this.#restores.change(taken, { safePoint, run: undefined })
      throw error
    }
    return isRemoval ? this.#restores.change(taken, { safePoint, run: { ...fresh, holder } }) : taken
  }

  /** Timestamps of the servers are above `ts` from then on. */
  async #passBy(ts: Timestamp): Promise<void> {
    for (;;) {
      const next = await this.#oracle.next()
      if (next > ts) return
      const aheadMs = physicalMs(ts) - physicalMs(next)
      if (aheadMs > AHEAD_MS_MAX)
        throw invalid('body', `the backup is of ts ${ts}, ${Math.ceil(aheadMs / 1000)} s ahead of the servers' clocks`)
      await sleep(Math.min(1000, aheadMs + 1))
    }
  }

  async #put(pairs: readonly ValuedPair[], record: RestoreRecord): Promise<RestoreRecord> {
    const run = runOf(record)
    const { lastKey } = run
    const fresh = lastKey === undefined ? pairs : pairs.filter(({ key }) => Buffer.compare(key, lastKey) > 0)
    if (fresh.length === 0) return record
    for (const part of inParts(fresh, ROWS_AT_ONCE)) {
      await this.#restores.requireHeld(run.holder)
      await all(part.map((pair) => this.#putPair(pair, run)))
    }
    const next = {
      ...run,
      lastKey: fresh.at(-1)?.key,
      pairs: run.pairs + fresh.length,
      bytes: fresh.reduce((sum, pair) => sum + pairBytes(pair), run.bytes),
    }
    return this.#restores.change(record, { safePoint: record.safePoint, run: next })
  }

  /** @throws KvError `precondition_failed` when somebody else has written the row. */
  async #putPair(pair: ValuedPair, { id, holder }: RestoreRun): Promise<void> {
    const revision = Buffer.from(id + holder, 'hex')
    const rowKey = rowKeyOf(pair.key)
    const writes = writesOf(mutationsOf(pair, this.#shortValueBytesMax), revision)
    let found: Buffer | undefined
    const backoff = new Backoff(10, 500)
    for (let tries = 1; tries <= TRIES_MAX; tries++) {
      const expected = { family: 'v', qualifier: REVISION, value: found } as const
      const changed = await this.#table.change(rowKey, expected, writes)
      if (changed === 'done') return
      if (changed === 'unknown') await backoff.wait()
      const [row] = await this.#table.rows({ keys: [rowKey], columns: [REVISION_COLUMN, ...ANY_RECORD] })
      found = row && revisionOf(row)
      if (isOf(found, id)) return
      // A revision alone is what is left of an undone lock.
      if (row === undefined || !hasRecord(row)) continue
      // Or the restore has been completed by another server, and others have written since.
      await this.#restores.refresh()
      await this.#restores.requireHeld(holder)
      throw written(row)
    }
    throw new KvError('storage_unavailable', 'Bigtable does not answer', {})
  }

  /** Raises the safe point above transactions that began on the empty table, so that they cannot go on. */
  async #complete(record: RestoreRecord): Promise<RestoreProgress> {
    const { holder, isRemoval: _, ...progress } = runOf(record)
    await this.#restores.requireHeld(holder)
    await this.#requireWhole(progress)
    await this.#restores.change(record, { safePoint: await this.#oracle.next(), run: undefined })
    return progress
  }

  /** That every pair is there, and nothing else: also where a server wrote long after it had decided to. */
  async #requireWhole({ id, pairs }: RestoreProgress): Promise<void> {
    let found = 0
    for await (const rows of this.#scan.pages({}, [REVISION_COLUMN]))
      for (const row of rows)
        if (isOf(revisionOf(row), id)) found++
        else {
          const [whole] = await this.#table.rows({ keys: [row.key], columns: ANY_RECORD })
          if (whole !== undefined) throw written(whole)
        }
    if (found === pairs) return
    const detail = `${found} of the restored ${pairs} pairs are there: restore with restart=true`
    throw new KvError('storage_unavailable', detail, {})
  }

  /** Deleted keys still have records of their deletion. */
  async #requireEmpty(): Promise<void> {
    const [row] = await this.#table.rows({ ranges: [rowRangeOf({})], columns: ANY_RECORD, limit: 1 })
    if (row !== undefined) throw notEmpty(row)
  }

  /** Removes the rows that restores have written. Those that somebody has changed since stay. */
  async #removeAll(): Promise<void> {
    for await (const rows of this.#scan.pages({}, [REVISION_COLUMN, { family: 'w' }])) {
      const restored = rows.filter((row) => isRestored(revisionOf(row)))
      for (const part of inParts(restored, ROWS_AT_ONCE)) await all(part.map((row) => this.#remove(row)))
    }
  }

  async #remove(row: TableRow): Promise<void> {
    const { key, cells } = row
    const revision = { family: 'v', qualifier: REVISION } as const
    const value = revisionOf(row)
    const mutations: Mutation[] = []
    for (const { commitTs, startTs } of decodeCells(cells).writes)
      mutations.push({ type: 'delete-write', key, commitTs }, { type: 'delete-value', key, startTs })
    const writes: ColumnWrite[] = [
      ...writesOf(mutations, NOTHING).filter(({ family }) => family !== 'v'),
      { ...revision, value: undefined },
    ]
    const backoff = new Backoff(10, 500)
    // Refused: an earlier try was done, or somebody else has changed it.
    for (let tries = 1; (await this.#table.change(key, { ...revision, value }, writes)) === 'unknown'; tries++) {
      if (tries === TRIES_MAX) throw new KvError('storage_unavailable', 'Bigtable does not answer', {})
      await backoff.wait()
    }
  }
}

/** Fails when none is under way any more, with the first failure. */
async function all(calls: readonly Promise<void>[]): Promise<void> {
  const failed = (await Promise.allSettled(calls)).find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}

function runOf({ run }: RestoreRecord): RestoreRun {
  if (run === undefined) throw new Error('the restore is over')
  return run
}

function revisionOf({ cells }: TableRow): Buffer | undefined {
  return cells.find(({ family }) => family === 'v')?.value
}

/** Whether a restore has put the row, and nobody has changed it since. */
function isRestored(revision: Buffer | undefined): boolean {
  return revision?.length === RESTORED_BYTES
}

function isOf(revision: Buffer | undefined, id: string): boolean {
  return isRestored(revision) && revision?.toString('hex', 0, ID_BYTES) === id
}

function hasRecord({ cells }: TableRow): boolean {
  return cells.some(({ family }) => family !== 'v')
}

function notEmpty(row: TableRow): KvError<'precondition_failed'> {
  return refusal(row, (key) => `the store is not empty: it has records of the key ${key}`)
}

function written(row: TableRow): KvError<'precondition_failed'> {
  const hint = 'restart=true removes what was restored, and leaves that key'
  return refusal(row, (key) => `another server wrote the key ${key} while the restore began: ${hint}`)
}

function refusal(row: TableRow, detail: (key: string) => string): KvError<'precondition_failed'> {
  const key = keyOfRow(row.key)
  return new KvError('precondition_failed', detail(printKey(key)), { key, commitTs: versionOf(row) })
}

/** commit_ts of the newest version; 0: the key is absent. */
function versionOf({ cells }: TableRow): Timestamp {
  const newest = decodeCells(cells).writes.find(isData)
  return newest?.type === 'put' ? newest.commitTs : 0
}

function leftOver({ ts }: RestoreRun): KvError<'precondition_failed'> {
  const detail = `the store holds a part of another backup, of ts ${ts}: continue with that one, or restore with restart=true`
  return new KvError('precondition_failed', detail, { key: Buffer.alloc(0), commitTs: 0 })
}

/** The records that a commit would write. The start_ts is unknown, so it is `commitTs - 1`. */
function mutationsOf({ key, value, commitTs, expireTs = 0 }: ValuedPair, shortValueBytesMax: number): Mutation[] {
  const startTs = commitTs - 1
  const isShort = value.length <= shortValueBytesMax
  const write = {
    type: 'put',
    startTs,
    commitTs,
    shortValue: isShort ? value : undefined,
    expireTs,
    leaseFence: 0,
    isProtected: false,
    hasOverlappedRollback: false,
  } as const
  const record: Mutation = { type: 'put-write', key, write }
  return isShort ? [record] : [record, { type: 'put-value', key, startTs, value }]
}
