import type { RawCell, RawRow, RawRows } from '../check/raw-rows.js'
import {
  type AnswerStream,
  type DataClient,
  drain,
  openDataClient,
  type ReadRowsAnswer,
  streamOptions,
} from './google-package.js'
import { Patience } from './patience.js'
import type { CellChunk } from './row-chunks.js'
import { type TableAddress, tableName } from './table-address.js'

const PAGE_ROWS = 256
/** Limit on the bytes of a page, without long values. A single row may be larger. */
const PAGE_BYTES = 16 << 20
const PAGE_MS = 60_000
const LONG_VALUES = 'd'

export async function openRawRows(address: TableAddress): Promise<RawRows & { close(): Promise<void> }> {
  return new GoogleRows(await openDataClient(), address)
}

class GoogleRows implements RawRows {
  readonly #client: DataClient
  readonly #on: { readonly tableName: string; readonly appProfileId: string }

  constructor(client: DataClient, address: TableAddress) {
    this.#client = client
    this.#on = { tableName: tableName(address), appProfileId: address.appProfile ?? '' }
  }

  page(start: Buffer): Promise<readonly RawRow[]> {
    return this.#read({ rowKeys: [], rowRanges: [{ startKeyClosed: start }] }, PAGE_ROWS)
  }

  async row(key: Buffer): Promise<RawRow | undefined> {
    return (await this.#read({ rowKeys: [key], rowRanges: [] }, 1))[0]
  }

  async close(): Promise<void> {
    await this.#client.close()
  }

  async #read(rows: object, rowsLimit: number): Promise<readonly RawRow[]> {
    const patience = new Patience()
    for (;;) {
      const page = new RawPage()
      const query = { ...this.#on, rows, filter: { passAllFilter: true } as const, rowsLimit, reversed: false }
      try {
        await drain(
          this.#client.readRows(query, streamOptions(PAGE_MS)) as AnswerStream<ReadRowsAnswer>,
          ({ chunks }) => {
            for (const chunk of chunks) page.add(chunk)
          },
        )
        return page.rows
      } catch (error) {
        // Rows received before a failure are whole.
        if (page.rows.length > 0) return page.rows
        await patience.after(error)
      }
    }
  }
}

/** Assembles rows from the pieces of an answer. Drops the bytes of long values. */
class RawPage {
  readonly rows: RawRow[] = []
  #bytes = 0
  #key: Buffer | undefined
  #family = ''
  #qualifier: Buffer = Buffer.alloc(0)
  #timestampMicros = 0
  #pieces: Buffer[] = []
  #valueBytes = 0
  #isWithinCell = false
  #cells: RawCell[] = []

  /** @throws Error once the page is full */
  add(chunk: CellChunk): void {
    if (chunk.resetRow) {
      this.#begin()
      return
    }
    if (chunk.rowKey.length > 0) this.#key ??= Buffer.from(chunk.rowKey)
    if (chunk.familyName !== null) this.#family = chunk.familyName.value
    if (chunk.qualifier !== null) this.#qualifier = Buffer.from(chunk.qualifier.value)
    if (!this.#isWithinCell) this.#timestampMicros = Number(chunk.timestampMicros)
    this.#isWithinCell = chunk.valueSize > 0
    this.#valueBytes += chunk.value.length
    if (this.#family !== LONG_VALUES) this.#pieces.push(Buffer.from(chunk.value))
    if (this.#isWithinCell) return
    this.#cells.push({
      family: this.#family,
      qualifier: this.#qualifier,
      timestampMicros: this.#timestampMicros,
      value: this.#family === LONG_VALUES ? undefined : Buffer.concat(this.#pieces),
      valueBytes: this.#valueBytes,
    })
    this.#pieces = []
    this.#valueBytes = 0
    if (!chunk.commitRow || this.#key === undefined) return
    const row = { key: this.#key, cells: this.#cells }
    this.rows.push(row)
    this.#bytes += row.cells.reduce((sum, { value }) => sum + (value?.length ?? 0), 0)
    this.#begin()
    if (this.#bytes >= PAGE_BYTES) throw new Error('the page is full')
  }

  #begin(): void {
    this.#key = undefined
    this.#cells = []
    this.#pieces = []
    this.#valueBytes = 0
    this.#isWithinCell = false
  }
}
