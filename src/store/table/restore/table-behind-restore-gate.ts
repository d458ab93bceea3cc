import { isRowOfUser } from '../layout/row-keys.js'
import type {
  Changed,
  ChangeTogether,
  Expected,
  RowRange,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../layout/table.js'
import type { RestoreGate } from './restore-gate.js'

/**
 * A table whose rows of users are neither read nor changed while a restore is incomplete; rows of the server are. Nothing is
 * changed once this server must not serve any more. The check comes after a read, and before a change, which is done only if the
 * row is as it was read.
 */
export class TableBehindRestoreGate implements Table {
  readonly #table: Table
  readonly #restoreGate: RestoreGate
  readonly changeTogether?: ChangeTogether

  constructor(table: Table, restoreGate: RestoreGate) {
    this.#table = table
    this.#restoreGate = restoreGate
    const { changeTogether } = table
    if (changeTogether !== undefined)
      this.changeTogether = async (rows, writes, withinMs) => {
        restoreGate.requireServing()
        await restoreGate.requireRestored()
        return changeTogether(rows, writes, withinMs)
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

  async rows(request: RowsRequest): Promise<readonly TableRow[]> {
    const rows = await this.#table.rows(request)
    const { keys = [], ranges = [] } = request
    if (keys.some(isRowOfUser) || ranges.some(hasRowsOfUsers)) await this.#restoreGate.requireRestored()
    return rows
  }

  async walk(request: WalkRequest): Promise<WalkedRows> {
    const walked = await this.#table.walk(request)
    if (hasRowsOfUsers(request.range)) await this.#restoreGate.requireRestored()
    return walked
  }

  async change(
    key: Buffer,
    expected: Expected,
    writes: readonly RowWrite[] | 'remove',
    withinMs?: number,
  ): Promise<Changed> {
    this.#restoreGate.requireServing()
    if (isRowOfUser(key)) await this.#restoreGate.requireRestored()
    return this.#table.change(key, expected, writes, withinMs)
  }

  close(): Promise<void> {
    return this.#table.close()
  }
}

/** Rows of the server come first. */
function hasRowsOfUsers({ end }: RowRange): boolean {
  return end === undefined || isRowOfUser(end)
}
