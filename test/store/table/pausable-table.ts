import type { ChangeTogether, Table } from '../../../src/store/table/layout/table.js'

/** The table of a server that can be stopped: calls begin, and answers arrive, when it goes on. */
export class PausableTable implements Table {
  readonly #table: Table
  #going: Promise<void> | undefined
  #goOn: () => void = () => {}

  readonly changeTogether?: ChangeTogether

  constructor(table: Table) {
    this.#table = table
    if (table.changeTogether !== undefined)
      this.changeTogether = (rows, writes, withinMs) =>
        this.#call(async () => table.changeTogether?.(rows, () => this.#call(writes), withinMs) ?? 'refused')
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
  get isPaused(): boolean {
    return this.#going !== undefined
  }

  pause(): void {
    this.#going ??= new Promise((resolve) => {
      this.#goOn = resolve
    })
  }

  goOn(): void {
    this.#going = undefined
    this.#goOn()
  }

  readonly rows: Table['rows'] = (request) => this.#call(() => this.#table.rows(request))
  readonly walk: Table['walk'] = (request) => this.#call(() => this.#table.walk(request))
  readonly change: Table['change'] = (...given) => this.#call(() => this.#table.change(...given))
  readonly close: Table['close'] = async () => {}

  async #call<T>(call: () => Promise<T>): Promise<T> {
    while (this.#going !== undefined) await this.#going
    try {
      return await call()
    } finally {
      while (this.#going !== undefined) await this.#going
    }
  }
}
