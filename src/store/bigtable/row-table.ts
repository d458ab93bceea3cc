import { keyText } from '../../bytes/key-text.js'
import { Backoff } from '../../coordinator/backoff.js'
import { KvError } from '../../errors/kv-error.js'
import type { HistoryDepth, Mutation } from '../../percolator/row.js'
import type { Timestamp } from '../../timestamp.js'
import { afterMutations, isKnown, type KnownRow, knownRow } from './known-row.js'
import { columnsOf, decodeCells, NO_CELLS, REVISION, REVISION_COLUMN, writesOf } from './layout.js'
import { Revisions } from './revisions.js'
import type { RowCache } from './row-cache.js'
import { rowKeyOf } from './row-keys.js'
import type { ColumnWrite, Table } from './table.js'

/** Tries of a change whose outcome stays unknown. Together they take some ten seconds. */
const TRIES_MAX = 20

/** What came of a change: the row as it stands now; undefined: somebody else was faster. */
export interface ChangedRow {
  readonly row: KnownRow | undefined
  /** An answer was lost on the way, so an earlier request may have been done although it was refused. */
  readonly wasUncertain: boolean
}

/** Rows that are read, and changed only if they still have the revision that was read. */
export class RowTable {
  readonly #table: Table
  readonly #cache: RowCache
  readonly #revisions = new Revisions()
  /** Of the guesses: rows that were decided on as the cache had them. */
  readonly counts = { lostGuesses: 0, races: 0, uncertain: 0 }

  constructor(table: Table, cache: RowCache) {
    this.#table = table
    this.#cache = cache
  }

  /** A row of the cache that is known as deep as asked. */
  guess(key: Uint8Array, depth: HistoryDepth, ts: Timestamp): KnownRow | undefined {
    const row = this.#cache.get(key)
    return row !== undefined && isKnown(row, depth, ts) ? row : undefined
  }

  forget(key: Uint8Array): void {
    this.#cache.delete(key)
  }

  remember(row: KnownRow): void {
    this.#cache.set(row)
  }

  /** `rows[i]` is that of `keys[i]`. @throws KvError `storage_unavailable` */
  async read(keys: readonly Uint8Array[], depth: HistoryDepth, ts: Timestamp): Promise<KnownRow[]> {
    const rowKeys = keys.map(rowKeyOf)
    const found = new Map<string, KnownRow>()
    for (const { key, cells } of await this.#table.rows({ keys: rowKeys, columns: columnsOf(depth, ts) }))
      found.set(keyText(key), knownRow(key, decodeCells(cells), depth, ts))
    return keys.map((key, i) => {
      const row = { ...(found.get(keyText(rowKeys[i] as Buffer)) ?? knownRow(key, NO_CELLS, depth, ts)), key }
      this.#cache.set(row)
      return row
    })
  }

  /**
   * Writes the mutations of one row if it still has its revision. A lost answer is asked for again by the same
   * mutation under the same new revision: a copy that lands late meets another revision.
   * @throws KvError `storage_unavailable`: it may be done or not, or be done later.
   */
  async change(row: KnownRow, mutations: readonly Mutation[]): Promise<ChangedRow> {
    const revision = this.#revisions.next()
    const rowKey = rowKeyOf(row.key)
    const expected = { family: 'v', qualifier: REVISION, value: row.revision } as const
    const writes: readonly ColumnWrite[] = writesOf(mutations, revision)
    const backoff = new Backoff(10, 500)
    for (let tries = 1; ; tries++) {
      const changed = await this.#table.change(rowKey, expected, writes)
      const wasUncertain = tries > 1
      if (changed === 'done') return { row: this.#landed(row, mutations, revision), wasUncertain }
      if (changed === 'refused') {
        this.#cache.delete(row.key)
        if (wasUncertain && (await this.#hasRevision(rowKey, revision)))
          return { row: this.#landed(row, mutations, revision), wasUncertain }
        this.counts.races++
        return { row: undefined, wasUncertain }
      }
      this.counts.uncertain++
      if (tries === TRIES_MAX) {
        this.#cache.delete(row.key)
        throw new KvError('storage_unavailable', 'Bigtable does not answer: the change may be done or not', {})
      }
      await backoff.wait()
    }
  }

  #landed(row: KnownRow, mutations: readonly Mutation[], revision: Buffer): KnownRow {
    const after = afterMutations(row, mutations, revision)
    this.#cache.set(after)
    return after
  }

  async #hasRevision(rowKey: Buffer, revision: Buffer): Promise<boolean> {
    const [row] = await this.#table.rows({ keys: [rowKey], columns: [REVISION_COLUMN] })
    return row?.cells[0]?.value.equals(revision) ?? false
  }
}
