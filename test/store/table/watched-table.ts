import type {
  Changed,
  ChangeTogether,
  Expected,
  RowsRequest,
  RowWrite,
  Table,
  WalkRequest,
} from '../../../src/store/table/layout/table.js'

/** The table as one server calls it. The test may hold its changes, and do something between its reads. */
export class WatchedTable implements Table {
  readonly #table: Table
  onChange: (key: Buffer) => Promise<void> | undefined = () => undefined
  onRows: (request: RowsRequest) => Promise<void> | undefined = () => undefined
  onWalk: (request: WalkRequest) => Promise<void> | undefined = () => undefined
  /** Between the locks of rows that change together, with what is to be written, and the commit. */
  onLocked: () => Promise<void> | undefined = () => undefined
  reads = 0

  readonly changeTogether?: ChangeTogether

  constructor(table: Table) {
    this.#table = table
    if (table.changeTogether !== undefined)
      this.changeTogether = async (rows, writes, withinMs) => {
        for (const { key } of rows) await this.onChange(key)
        const planned: typeof writes = async () => {
          const all = await writes()
          await this.onLocked()
          return all
        }
        return table.changeTogether?.(rows, planned, withinMs) ?? 'refused'
      }
  }
  get engine(): Table['engine'] {
    return this.#table.engine
  }
  get calls(): Table['calls'] {
    return this.#table.calls
  }
  get inFlight(): Table['inFlight'] {
    return this.#table.inFlight
  }
  async rows(request: RowsRequest) {
    this.reads++
    await this.onRows(request)
    return this.#table.rows(request)
  }
  async walk(request: WalkRequest) {
    this.reads++
    await this.onWalk(request)
    return this.#table.walk(request)
  }
  async change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): Promise<Changed> {
    await this.onChange(key)
    return this.#table.change(key, expected, writes)
  }
  async close(): Promise<void> {}
}
