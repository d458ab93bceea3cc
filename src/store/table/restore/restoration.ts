import { randomBytes } from 'node:crypto'
import { inParts } from '../../../coordinator/in-parts.js'
import { invalid, KvError } from '../../../errors/kv-error.js'
import { printKey } from '../../../errors/print-key.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { ValuedPair } from '../../../percolator/api.js'
import type { Mutation } from '../../../percolator/row.js'
import { isData } from '../../../percolator/write.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import { leftOfAnother, notRestorable, type RestoreSteps, restoredMutations } from '../../restoration.js'
import type { RestoreProgress, RestoreSource } from '../../store.js'
import { type Certainty, certainChange } from '../layout/certain-change.js'
import { decodeCells, REVISION, REVISION_COLUMN, revisionWrite, writesOf } from '../layout/layout.js'
import { keyOfRow, rowKeyOf } from '../layout/row-keys.js'
import type { ColumnRange, ColumnWrite, Table, TableRow } from '../layout/table.js'
import { TableScan } from '../layout/table-scan.js'
import type { RestoreGate } from './restore-gate.js'
import type { RestoreRecord, RestoreRun } from './restore-row.js'

const ID_BYTES = 16
const RESTORED_BYTES = 2 * ID_BYTES
const NOTHING = Buffer.alloc(0)
const ROWS_AT_ONCE = 64
const TRIES_MAX = 20
/** The caller itself looks at the row after a refused change. */
const LOOKED_AT: Certainty = { isDone: async () => false }
/** A backup whose ts is further ahead of the timestamps is refused: no server could lead whose clock is behind it. */
const AHEAD_MS_MAX = 10_000
/** The newest cell of each family, of which a row with more than a revision has at least one. */
const ANY_RECORD: readonly ColumnRange[] = [
  { family: 'l' },
  { family: 'w', limit: 1 },
  { family: 'r', limit: 1 },
  { family: 'd', limit: 1 },
]

type HeldRecord = RestoreRecord & { readonly run: RestoreRun }

/**
 * Fills an empty table with the pairs of a backup. During that, a marker in the row `restore` keeps all servers of the table,
 * this one included, from rows of users.
 *
 * 1. The table is empty. The marker is put on the condition that there is none, so there is one holder.
 * 2. Four seconds pass (`RestoreGate.quietMs`): whoever looks at the copy from now on sees the marker, or has to ask.
 * 3. The table is looked at again. What was committed before, or can still be committed, has records or locks there: then the
 *    marker goes.
 * 4. Each pair is put on the condition that its row has no record. A block is followed by the progress, on the condition that the
 *    marker still names this holder.
 * 5. All revisions are read: the pairs of the backup are there, and nothing else is. Then the marker makes room for the safe
 *    point, below which everything is refused, because it began on the empty table.
 *
 * So the change of a server that was stopped between its look and its change is refused by a restored row's revision, whatever
 * the clocks; or it lands elsewhere, or before the pair, and step 4 or 5 fails with the key. Nothing of it was acknowledged,
 * since that takes another look. Whoever goes on with a restore puts its own name into the marker and waits as in step 2.
 *
 * The revision of a restored row is the id of the backup and the holder of the marker, and has a length that no other one has.
 * This shows which rows another server has changed and which are restored already, and limits a removal for another restore to
 * rows that restores have written.
 */
export class TableRestoring implements RestoreSteps<HeldRecord> {
  readonly #table: Table
  readonly #scan: TableScan
  readonly #restoreGate: RestoreGate
  readonly #oracle: Pick<TimestampSource, 'next'>
  readonly #shortValueBytesMax: number

  /** @param table without a gate. */
  constructor(
    table: Table,
    restoreGate: RestoreGate,
    oracle: Pick<TimestampSource, 'next'>,
    shortValueBytesMax: number,
  ) {
    this.#table = table
    this.#scan = new TableScan(table)
    this.#restoreGate = restoreGate
    this.#oracle = oracle
    this.#shortValueBytesMax = shortValueBytesMax
  }

  /**
   * Takes the marker, and waits until every other server has seen it, whether it serves or was restoring.
   * @returns a record whose `run` is of this restore.
   */
  async begin(source: RestoreSource, restart: boolean): Promise<HeldRecord> {
    await this.#passBy(source.ts)
    const before = await this.#restoreGate.refresh()
    const left = before.run
    const fresh = { ...source, lastKey: undefined, pairs: 0, bytes: 0, isRemoval: false }
    const isOther = left !== undefined && left.id !== source.id
    if (left === undefined)
      await this.#requireEmpty() // A restore that is refused here disturbs no other server.
    else if (isOther && !restart && !left.isRemoval && left.lastKey !== undefined)
      throw notRestorable(leftOfAnother(left), NOTHING, 0)
    // Until its first block is stored, a restore does not know whether the table was empty.
    const isRemoval = left !== undefined && (restart || isOther || left.isRemoval || left.lastKey === undefined)
    const holder = randomBytes(ID_BYTES).toString('hex')
    const taken = await this.#change(before, { ...(left ?? fresh), isRemoval, holder })
    await sleep(this.#restoreGate.quietMs)
    if (left !== undefined && !isRemoval) return taken
    if (isRemoval) await this.#removeAll()
    try {
      await this.#requireEmpty()
    } catch (error) {
      await this.#change(taken, undefined)
      throw error
    }
    return isRemoval ? this.#change(taken, { ...fresh, holder }) : taken
  }

  #change<R extends RestoreRun | undefined>(before: RestoreRecord, run: R): Promise<RestoreRecord & { run: R }> {
    return this.#restoreGate.change(before, { safePoint: before.safePoint, run })
  }

  /** Waits until the servers' timestamps are above `ts`. */
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

  async put(pairs: readonly ValuedPair[], before: HeldRecord, progress: RestoreProgress): Promise<HeldRecord> {
    const { run } = before
    for (const part of inParts(pairs, ROWS_AT_ONCE)) {
      await this.#restoreGate.requireHeld(run.holder)
      await all(part.map((pair) => this.#putPair(pair, run)))
    }
    return this.#change(before, { ...run, ...progress })
  }

  /** @throws KvError `precondition_failed` when another server has written the row. */
  async #putPair(pair: ValuedPair, { id, holder }: RestoreRun): Promise<void> {
    const revision = Buffer.from(id + holder, 'hex')
    const rowKey = rowKeyOf(pair.key)
    const mutations = restoredMutations(pair, this.#shortValueBytesMax)
    const writes = [...writesOf(mutations), revisionWrite(revision)]
    let found: Buffer | undefined
    for (let tries = 1; tries <= TRIES_MAX; tries++) {
      const expected = { family: 'v', qualifier: REVISION, value: found } as const
      if (await certainChange(this.#table, rowKey, expected, writes, LOOKED_AT)) return
      const [row] = await this.#table.rows({ keys: [rowKey], columns: [REVISION_COLUMN, ...ANY_RECORD] })
      found = row && revisionOf(row)
      if (isOf(found, id)) return
      // A revision alone is left of an undone lock.
      if (row === undefined || !hasRecord(row)) continue
      // Or another server has completed the restore, and the row was written after that.
      await this.#restoreGate.refresh()
      await this.#restoreGate.requireHeld(holder)
      throw written(row)
    }
    throw new KvError('storage_unavailable', `the row of the key ${printKey(pair.key)} keeps changing`, {})
  }

  async complete(last: HeldRecord): Promise<void> {
    await this.#restoreGate.requireHeld(last.run.holder)
    await this.#requireWhole(last.run)
    await this.#restoreGate.change(last, { safePoint: await this.#oracle.next(), run: undefined })
  }

  /** Checks that the table holds exactly the backup, even if a stalled server wrote late. */
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
    for await (const [row] of this.#scan.pages({}, ANY_RECORD, { firstRows: 1 }))
      if (row !== undefined) throw notEmpty(row)
  }

  /** Removes the rows that restores have written. Rows that were changed since stay. */
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
    const writes: ColumnWrite[] = [...writesOf(mutations), { ...revision, value: undefined }]
    // A refusal means that an earlier try landed, or that another server has changed the row.
    await certainChange(this.#table, key, { ...revision, value }, writes, LOOKED_AT)
  }
}

/** Waits for all calls, then throws the first failure. */
async function all(calls: readonly Promise<void>[]): Promise<void> {
  const failed = (await Promise.allSettled(calls)).find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}

function revisionOf({ cells }: TableRow): Buffer | undefined {
  return cells.find(({ family }) => family === 'v')?.value
}

/** True when a restore wrote the row and it was not changed since. */
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
  return notRestorable(detail(printKey(key)), key, versionOf(row))
}

/** commit_ts of the newest version; 0: the key is absent. */
function versionOf({ cells }: TableRow): Timestamp {
  const newest = decodeCells(cells).writes.find(isData)
  return newest?.type === 'put' ? newest.commitTs : 0
}
