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
  reads = 0

  readonly changeTogether?: ChangeTogether

  constructor(table: Table) {
    this.#table = table
    if (table.changeTogether !== undefined)
      this.changeTogether = async (rows, ...others) => {
        for (const { key } of rows) await this.onChange(key)
        return table.changeTogether?.(rows, ...others) ?? 'refused'
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
