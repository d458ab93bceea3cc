import type {
  Changed,
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

  constructor(table: Table) {
    this.#table = table
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
