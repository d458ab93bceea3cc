import { keyText } from '../../../bytes/key-text.js'
import { inParts } from '../../../coordinator/in-parts.js'
import type { HistoryDepth, Mutation } from '../../../percolator/row.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { SIZES_FORMAT } from '../format/format-row.js'
import { certainChange } from '../layout/certain-change.js'
import {
  clearingWrites,
  columnsOf,
  decodeCells,
  garbageColumns,
  NO_CELLS,
  REVISION,
  REVISION_COLUMN,
  removalsOf,
  revisionWrite,
  writesOf,
} from '../layout/layout.js'
import { Revisions } from '../layout/revisions.js'
import { rowKeyOf } from '../layout/row-keys.js'
import { afterWrites, bytesOf, collectedTo, hasSize, sizeOf, withSize } from '../layout/row-size.js'
import type { ColumnWrite, Expected, RowCondition, Table } from '../layout/table.js'
import {
  afterMutations,
  collectable,
  GARBAGE_MAX,
  isGarbageUnknown,
  isKnown,
  type KnownRow,
  knownRow,
} from './known-row.js'
import type { RowCache } from './row-cache.js'
import type { SafePoint } from './safe-point.js'

export interface ChangedRow {
  readonly row: KnownRow | undefined
  /** An answer was lost, so an earlier request may have been done although this one was refused. */
  readonly wasUncertain: boolean
}

/**
 * Bytes of a row's versions from which on it takes no more Puts. Bigtable refuses rows of 256 MiB, and the count leaves out one
 * version and what was removed but not yet compacted.
 */
const ROW_BYTES_MAX = 128 << 20
/** How many portions a full row has. After a collection, up to about one of them still counts what was removed. */
const PORTIONS = 16
/** Rows that are made at once. */
const ROWS_AT_ONCE = 64

export interface RowTableOptions {
  /** The format in which rows are written at the moment. */
  readonly format: () => number
  /** For tests. */
  readonly rowBytesMax?: number | undefined
}

export class RowTable {
  readonly #table: Table
  readonly #format: () => number
  readonly #rowBytesMax: number
  readonly #cache: RowCache
  readonly #safePoint: Pick<SafePoint, 'cleared'>
  readonly #revisions = new Revisions()
  /** `lostGuesses`: races lost because the decision used a cached row. */
  readonly counts = { lostGuesses: 0, races: 0, uncertain: 0, trimmed: 0 }

  constructor(
    table: Table,
    cache: RowCache,
    safePoint: Pick<SafePoint, 'cleared'>,
    { format, rowBytesMax = ROW_BYTES_MAX }: RowTableOptions,
  ) {
    this.#format = format
    this.#rowBytesMax = rowBytesMax
    this.#table = table
    this.#cache = cache
    this.#safePoint = safePoint
  }

  /** @returns a cached row, if it is known as deep as asked. */
  guess(key: Uint8Array, depth: HistoryDepth, ts: Timestamp): KnownRow | undefined {
    const row = this.#cache.get(key)
    if (row === undefined || !isKnown(row, depth, ts)) return undefined
    return depth !== 'none' && isGarbageUnknown(row, this.#safePoint.cleared) ? undefined : row
  }

  forget(key: Uint8Array): void {
    this.#cache.delete(key)
  }

  /** Notes a row that was read in part. Keeps what was known before, as far as it still holds. */
  remember(row: KnownRow): void {
    const before = this.#cache.get(row.key)
    if (before === undefined) this.#cache.set(row)
    else if (before.revision === undefined || row.revision?.equals(before.revision) !== true)
      this.#cache.set({ ...row, added: before.added + 1, collectableTo: before.collectableTo })
  }

  /**
   * Returns `rows[i]` for `keys[i]`. Settled, because a decision may rest on a row that it does not write, and a repeat has to know
   * whether an earlier try has landed. @throws KvError `storage_unavailable`
   */
  async read(keys: readonly Uint8Array[], depth: HistoryDepth, ts: Timestamp): Promise<KnownRow[]> {
    const rowKeys = keys.map(rowKeyOf)
    const found = new Map<string, KnownRow>()
    const collectableTo = depth === 'none' ? 0 : this.#safePoint.cleared
    const columns = columnsOf(depth, ts)
    const all = collectableTo === 0 ? columns : [...columns, ...garbageColumns(collectableTo, GARBAGE_MAX)]
    for (const { key, cells } of await this.#table.rows({ keys: rowKeys, columns: all, settled: true }))
      found.set(keyText(key), knownRow(key, decodeCells(cells), depth, ts, collectableTo))
    return keys.map((key, i) => {
      const read = found.get(keyText(rowKeys[i] as Buffer)) ?? knownRow(key, NO_CELLS, depth, ts, collectableTo)
      const row = { ...read, key }
      this.#cache.set(row)
      return row
    })
  }

  /**
   * Writes the mutations of one row if it still has its revision. After a lost answer the same mutation is sent again with the
   * same new revision: a copy that lands late meets another revision. A change that ends a transaction also removes old records
   * that no reader needs.
   * @throws KvError `storage_unavailable`: the change may be done, not done, or done later.
   */
  async change(row: KnownRow, mutations: readonly Mutation[]): Promise<ChangedRow> {
    return this.#change(row, mutations, endsTransaction(mutations) ? this.#garbageOf(row, mutations) : [])
  }

  get changesTogether(): boolean {
    return this.#table.changeTogether !== undefined
  }

  /**
   * Writes the mutations of several rows at one moment, if all still have their revisions. A row that is not there gets one first.
   * An outcome that is unknown is not asked for: the caller reads the rows again.
   * @param mutationsOf called when the table has locked the rows. `mutationsOf()[i]` are for `rows[i]`; undefined: the change is
   *   given up.
   * @throws KvError `storage_unavailable`: the change may be done, not done, or done later.
   */
  async changeTogether(
    rows: readonly KnownRow[],
    mutationsOf: () => Promise<readonly (readonly Mutation[])[] | undefined>,
  ): Promise<{ readonly isWhole: boolean; readonly wasUncertain: boolean }> {
    const { changeTogether } = this.#table
    if (changeTogether === undefined) throw new Error('the table changes one row at a time')
    const there = await this.#withRevisions(rows)
    if (there === undefined) return { isWhole: false, wasUncertain: false }
    const conditions = there.map(({ key, revision }) => ({ key: rowKeyOf(key), expected: revised(revision) }))
    let after: readonly KnownRow[] = []
    let trimmed = 0
    const changed = await changeTogether(conditions, async () => {
      const mutations = await mutationsOf()
      if (mutations === undefined) return undefined
      const planned = there.map((row, i) => {
        const own = mutations[i] ?? []
        const garbage = this.#garbageOf(row, own)
        trimmed += garbage.length
        return this.#planned(row, own, garbage)
      })
      after = planned.map(({ after }) => after)
      return planned.map(({ writes }) => writes)
    })
    if (changed === 'done') {
      for (const row of after) this.#cache.set(row)
      this.counts.trimmed += trimmed
    } else for (const { key } of rows) this.#cache.delete(key)
    if (changed === 'refused') this.counts.races++
    if (changed === 'unknown') this.counts.uncertain++
    return { isWhole: changed === 'done', wasUncertain: changed === 'unknown' }
  }

  /** @returns undefined when another change was faster. */
  async #withRevisions(rows: readonly KnownRow[]): Promise<readonly (KnownRow & { revision: Buffer })[] | undefined> {
    const there: (KnownRow & { revision: Buffer })[] = []
    for (const some of inParts(rows, ROWS_AT_ONCE)) {
      const made = some.map(async (row) => (row.revision === undefined ? (await this.#change(row, [], [])).row : row))
      for (const row of await Promise.all(made)) {
        if (row?.revision === undefined) return undefined
        there.push({ ...row, revision: row.revision })
      }
    }
    return there
  }

  /** True when the row takes no more Puts before some of its versions are collected. */
  isFull({ revision }: KnownRow): boolean {
    return bytesOf(sizeOf(revision)) >= this.#rowBytesMax
  }

  /** True when a collection up to `ts` that finds nothing to remove still makes the row smaller. */
  isOvercounted(row: KnownRow, ts: Timestamp): boolean {
    const size = sizeOf(row.revision)
    return bytesOf(collectedTo(size, ts, newestIn(row))) < bytesOf(size)
  }

  /**
   * Only removes records of a row.
   * @param upTo nothing else that may be removed is left at or below it. @throws as `change`
   */
  async collect(row: KnownRow, garbage: readonly WriteRecord[], upTo: Timestamp = 0): Promise<ChangedRow> {
    const changed = await this.#change(row, [], garbage, upTo)
    this.#cache.delete(row.key) // No request of this process has asked for the row.
    return changed
  }

  /**
   * Removes the whole row if it still has its revision. Only for rows that no late prewrite can bring back.
   * @returns true when that is known to be done.
   */
  async remove({ key, revision }: KnownRow): Promise<boolean> {
    this.#cache.delete(key)
    if (revision === undefined) return false
    return (await this.#table.change(rowKeyOf(key), this.#expecting(revision), 'remove')) === 'done'
  }

  /**
   * Removes all but the revision of a row, which becomes a new one, if the row still has its own. So a late copy of the prewrite
   * that created the row is refused: it was decided on a row without a revision.
   * @returns true when that is known to be done.
   */
  async clear({ key, revision }: KnownRow): Promise<boolean> {
    this.#cache.delete(key)
    const writes = clearingWrites(this.#revisions.next())
    return (await this.#table.change(rowKeyOf(key), this.#expecting(revision), writes)) === 'done'
  }

  /** Leaves out records that the mutations write or remove themselves. */
  #garbageOf(row: KnownRow, mutations: readonly Mutation[]): readonly WriteRecord[] {
    const touched = new Set<Timestamp>()
    for (const mutation of mutations)
      if (mutation.type === 'put-write') touched.add(mutation.write.commitTs)
      else if (mutation.type === 'delete-write') touched.add(mutation.commitTs)
    return collectable(row, this.#safePoint.cleared).filter(({ commitTs }) => !touched.has(commitTs))
  }

  async #change(
    row: KnownRow,
    mutations: readonly Mutation[],
    removed: readonly WriteRecord[],
    upTo: Timestamp = 0,
  ): Promise<ChangedRow> {
    const rowKey = rowKeyOf(row.key)
    const expected = this.#expecting(row.revision)
    const { after, writes } = this.#planned(row, mutations, removed, upTo)
    const landed = (): KnownRow => {
      this.#cache.set(after)
      if (mutations.length > 0) this.counts.trimmed += removed.length
      return after
    }
    let wasUncertain = false
    const isDone = () => this.#hasRevision(rowKey, after.revision)
    const isUnknown = (): void => {
      wasUncertain = true
      this.counts.uncertain++
      this.#cache.delete(row.key)
    }
    if (await certainChange(this.#table, rowKey, expected, writes, { isDone, isUnknown }))
      return { row: landed(), wasUncertain }
    this.#cache.delete(row.key)
    this.counts.races++
    return { row: undefined, wasUncertain }
  }

  /** What to write, and the row afterwards. */
  #planned(
    row: KnownRow,
    mutations: readonly Mutation[],
    removed: readonly WriteRecord[],
    upTo: Timestamp = 0,
  ): { readonly after: KnownRow & { readonly revision: Buffer }; readonly writes: readonly ColumnWrite[] } {
    const unrevised = afterMutations(row, mutations, removed)
    const records = writesOf(mutations)
    const revision = this.#revisionAfter(row, unrevised, records, upTo)
    return {
      after: { ...unrevised, revision },
      writes: [...removalsOf(removed), ...records, revisionWrite(revision)],
    }
  }

  /** With the size where the format has one, or the row already does. */
  #revisionAfter({ revision }: KnownRow, after: KnownRow, written: readonly ColumnWrite[], upTo: Timestamp): Buffer {
    const next = this.#revisions.next()
    if (this.#format() < SIZES_FORMAT && !hasSize(revision)) return next
    const newest = newestIn(after)
    const isLocked = after.lock !== undefined
    const size = afterWrites(sizeOf(revision), written, isLocked, newest, this.#rowBytesMax / PORTIONS)
    return withSize(next, collectedTo(size, upTo, newest))
  }

  #expecting(revision: Buffer | undefined): Expected {
    return { family: 'v', qualifier: REVISION, value: revision }
  }

  async #hasRevision(rowKey: Buffer, revision: Buffer): Promise<boolean> {
    const [row] = await this.#table.rows({ keys: [rowKey], columns: [REVISION_COLUMN] })
    return row?.cells[0]?.value.equals(revision) ?? false
  }
}

function revised(revision: Buffer): RowCondition['expected'] {
  return { family: 'v', qualifier: REVISION, value: revision }
}

/** undefined: it is unknown, or a lock may add a higher one. */
function newestIn({ lock, writes, since }: KnownRow): Timestamp | undefined {
  if (lock !== undefined) return undefined
  return writes[0]?.commitTs ?? (since === Number.POSITIVE_INFINITY ? undefined : 0)
}

function endsTransaction(mutations: readonly Mutation[]): boolean {
  return mutations.some(({ type }) => type === 'put-write' || type === 'delete-lock')
}
