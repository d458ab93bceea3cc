import { afterPrefix } from '../../../bytes/key-range.js'
import { lowestAfter } from '../../../bytes/sorted-map.js'
import type { Latches } from '../../latches.js'
import { latchOf, type SystemName, type SystemRecords, type SystemWrite } from '../../system-records.js'
import { SIZES_FORMAT } from '../format/format-row.js'
import { RECORD } from '../layout/layout.js'
import { Revisions } from '../layout/revisions.js'
import { rowKeyOfSystem, systemNameOf } from '../layout/row-keys.js'
import {
  isTombstone,
  LEAVES_TOMBSTONE,
  readRecord,
  removeRecord,
  replaceRecord,
  tombstoneOf,
  writeRecord,
} from '../layout/server-record.js'
import type { ColumnRange, Table, TableRow } from '../layout/table.js'
import type { TableScan } from '../layout/table-scan.js'

const COLUMNS: readonly ColumnRange[] = [{ family: 'o' }]

/**
 * Records of the server itself, one row each. Several records are not written atomically, so their writer must cope with a part
 * of them.
 */
export class SystemRows implements SystemRecords {
  readonly #table: Table
  readonly #scan: TableScan
  readonly #latches: Latches
  readonly #format: () => number
  readonly #revisions = new Revisions()

  /**
   * @param latches of this process alone, shared with transactions that claim keys and names at once.
   * @param format in which rows are written at the moment.
   */
  constructor(table: Table, scan: TableScan, latches: Latches, format: () => number) {
    this.#format = format
    this.#latches = latches
    this.#table = table
    this.#scan = scan
  }

  hold<T>(names: readonly string[], body: () => Promise<T>): Promise<T> {
    return this.#latches.hold(names.map(latchOf), body)
  }

  async get(name: SystemName): Promise<Uint8Array | undefined> {
    const [row] = await this.#table.rows({ keys: [rowKeyOfSystem(name)], columns: COLUMNS })
    return row && recordOf(row)
  }

  async many(names: readonly SystemName[]): Promise<(Uint8Array | undefined)[]> {
    const keys = names.map((name) => rowKeyOfSystem(name))
    const found = new Map<string, Uint8Array | undefined>()
    for (const row of await this.#table.rows({ keys, columns: COLUMNS }))
      found.set(systemNameOf(row.key), recordOf(row))
    return names.map((name) => found.get(name))
  }

  async list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>> {
    const found = new Map<SystemName, Uint8Array>()
    for await (const page of this.pages(prefix)) for (const [name, value] of page) found.set(name, value)
    return found
  }

  async *pages(
    prefix: SystemName,
    after?: SystemName,
  ): AsyncGenerator<readonly (readonly [SystemName, Uint8Array])[], void> {
    const start = rowKeyOfSystem(lowestAfter(after, prefix) as SystemName)
    const end = afterPrefix(rowKeyOfSystem(prefix))
    for await (const rows of this.#scan.rowPages({ start, end: end && Buffer.from(end) }, COLUMNS))
      yield rows.flatMap((row) => {
        const value = recordOf(row)
        return value === undefined ? [] : [[systemNameOf(row.key), value] as const]
      })
  }

  async write(writes: readonly SystemWrite[]): Promise<void> {
    const table = this.#table
    const all = writes.map(({ name, value }) => {
      const row = rowKeyOfSystem(name)
      if (value === undefined) return removeRecord(table, row, this.#tombstoneOf(name))
      return writeRecord(table, row, () => Buffer.from(value))
    })
    await Promise.all(all)
  }

  async replace(
    name: SystemName,
    expected: Uint8Array | undefined,
    value: Uint8Array | undefined,
    extraRecords: readonly SystemWrite[] = [],
  ): Promise<boolean> {
    await this.write(extraRecords)
    const row = rowKeyOfSystem(name)
    let before: Buffer | undefined = expected && Buffer.from(expected)
    if (before === undefined && LEAVES_TOMBSTONE.test(name)) {
      const present = await readRecord(this.#table, row)
      if (isTombstone(present)) before = present
    }
    return replaceRecord(this.#table, row, before, value === undefined ? this.#tombstoneOf(name) : Buffer.from(value))
  }

  #tombstoneOf(name: SystemName): Buffer | undefined {
    if (this.#format() < SIZES_FORMAT || !LEAVES_TOMBSTONE.test(name)) return undefined
    return tombstoneOf(this.#revisions.next())
  }
}

function recordOf({ cells }: TableRow): Buffer | undefined {
  const value = cells.find(({ qualifier }) => qualifier.equals(RECORD))?.value
  return isTombstone(value) ? undefined : value
}
