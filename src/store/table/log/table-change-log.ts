import { ChangeFilter } from '../../../changes/rules/change-filter.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { type Change, compareChanges, type KeyChange } from '../../../percolator/change.js'
import { belowSafePoint } from '../../../percolator/errors.js'
import type { Timestamp } from '../../../timestamp.js'
import type { ChangePage, ChangesRequest } from '../../change-log.js'
import { atOrBelow, decodeCells, LOCK_COLUMN, valueColumn, valuesIn } from '../layout/layout.js'
import { rowKeyOf } from '../layout/row-keys.js'
import type { Table } from '../layout/table.js'
import type { FeedRow } from './feed-row.js'
import { type LogReader, RemovedLog } from './log-reader.js'
import type { CommittedTxn } from './log-record.js'

const KEYS_AT_ONCE = 256

export interface TableChangeLogOptions {
  readonly table: Table
  readonly source: Pick<TimestampSource, 'last' | 'next'>
  readonly feed: FeedRow
  readonly reader: LogReader
  readonly safePoint: () => Timestamp
}

/** The changes of all servers, from their logs, with the values of the rows. */
export class TableChangeLog {
  readonly #options: TableChangeLogOptions

  constructor(options: TableChangeLogOptions) {
    this.#options = options
  }

  get start(): Timestamp {
    const { feed, safePoint } = this.#options
    return Math.max(feed.since ?? Number.POSITIVE_INFINITY, safePoint())
  }

  async begin(): Promise<void> {
    const { feed, source } = this.#options
    await feed.begin(() => source.next())
  }

  async resolve(): Promise<Timestamp> {
    await this.#options.source.next()
    return this.#options.reader.poll()
  }

  async *read({ since, upTo, ranges, keysOnly, signal }: ChangesRequest): AsyncGenerator<ChangePage, void> {
    const filter = new ChangeFilter(ranges)
    this.#requireLogged(since)
    let position = since
    try {
      for await (const page of this.#options.reader.pages(since, upTo)) {
        if (signal?.aborted) return
        const changes: Change[] = page.removals
          .map(({ ts, start, end }) => ({ type: 'delete_range' as const, key: start, end, commitTs: ts, startTs: ts }))
          .filter((change) => filter.has(change))
        const wanted = page.txns.flatMap(({ keys, ...txn }) =>
          keys.filter((key) => filter.hasKey(key)).map((key) => ({ ...txn, key })),
        )
        for (let from = 0; from < wanted.length; from += KEYS_AT_ONCE)
          changes.push(...(await this.#changesOf(wanted.slice(from, from + KEYS_AT_ONCE), keysOnly)))
        this.#requireLogged(position)
        position = page.upTo
        yield { changes: changes.sort(compareChanges), upTo: page.upTo }
      }
    } catch (error) {
      if (error instanceof RemovedLog) throw belowSafePoint(position, this.start)
      throw error
    }
  }

  #requireLogged(since: Timestamp): void {
    if (since < this.start) throw belowSafePoint(since, this.start)
  }

  /** Leaves out keys that were only locked, and versions that a delete_range or a collection has removed. */
  async #changesOf(
    wanted: readonly (Omit<CommittedTxn, 'keys'> & { readonly key: Uint8Array })[],
    keysOnly = false,
  ): Promise<KeyChange[]> {
    const changes = await Promise.all(
      wanted.map(async ({ key, startTs, commitTs }): Promise<KeyChange | undefined> => {
        const columns = [LOCK_COLUMN, atOrBelow('w', commitTs), ...(keysOnly ? [] : [valueColumn(startTs)])]
        const [row] = await this.#options.table.rows({ keys: [rowKeyOf(key)], columns })
        if (row === undefined) return undefined
        const { lock, writes } = decodeCells(row.cells)
        // A secondary may still have its lock, which becomes this record.
        const found =
          writes.find((write) => write.startTs === startTs) ?? (lock?.startTs === startTs ? lock : undefined)
        if (found === undefined) return undefined
        const change = { key, commitTs, startTs }
        if (found.type === 'delete') return { type: 'delete', ...change }
        if (found.type !== 'put') return undefined
        if (keysOnly) return { type: 'put', ...change }
        const value = found.shortValue ?? valuesIn(row.cells)[0]?.value
        if (value === undefined) return undefined
        const { expireTs } = found
        return { type: 'put', ...change, value, ...(expireTs === 0 ? {} : { expireTs }) }
      }),
    )
    return changes.filter((change) => change !== undefined)
  }
}
