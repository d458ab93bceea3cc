import { KvError } from '../../src/errors/kv-error.js'
import { BIGTABLE } from '../../src/store/table/bigtable/bigtable.js'
import { encodeFormat, FORMAT_KEY, NEWEST_FORMAT } from '../../src/store/table/format/format-row.js'
import { RECORD } from '../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../src/store/table/layout/row-keys.js'
import type {
  Changed,
  Expected,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../../src/store/table/layout/table.js'
import { encodeSafePoint } from '../../src/store/table/rows/safe-point-record.js'
import { TableRows } from '../store/table/table-rows.js'
import type { Faults } from './faults.js'
import type { Ledger } from './ledger.js'
import type { Owner, Scheduler } from './scheduler.js'

/** After how long a server at the latest gives an answer up that does not come. */
const GIVES_UP_MS = 5000
/** A change that is late, or a copy of it, is done within this time. */
const LATE_MS_MAX = 30_000

/** The table of all servers. What a server has sent arrives when it may be dead; what is answered arrives while it lives and runs. */
export class SharedTable {
  readonly rows: TableRows

  constructor(
    readonly scheduler: Scheduler,
    readonly faults: Faults,
    readonly nature: Owner,
    ledger: Ledger,
  ) {
    this.rows = new TableRows((key, writes) => {
      ledger.written(key, writes)
    })
    const value = encodeSafePoint({ safePoint: 0, cleared: 0, secondMs: faults.profile.safePointSecondMs })
    this.rows.write(rowKeyOfSystem('safe-point'), [{ family: 'o', qualifier: RECORD, value }])
    const format = encodeFormat({ ...NEWEST_FORMAT, turn: 1 })
    this.rows.write(FORMAT_KEY, [{ family: 'o', qualifier: RECORD, value: format }])
  }
}

/** The table as one process has it open. */
export class TableLink implements Table {
  readonly engine = BIGTABLE
  readonly calls = { read: 0, change: 0 }
  readonly inFlight = { calls: 0, bytes: 0 }
  readonly #table: SharedTable
  readonly #owner: Owner

  constructor(table: SharedTable, owner: Owner) {
    this.#table = table
    this.#owner = owner
  }

  rows(request: RowsRequest): Promise<readonly TableRow[]> {
    this.calls.read++
    return new Promise((resolve, reject) => {
      const { rows, faults } = this.#table
      this.#arrive('read', () => {
        if (faults.strikes('table_failed')) return this.#answer('fails', () => reject(unavailable()))
        const first = rows.read(request)
        const answer = (found: readonly TableRow[]): void => this.#answer('rows', () => resolve(found))
        // Rows are not read at one moment.
        if (first.length < 2 || faults.random.chance(0.7)) return answer(first)
        const { key } = faults.random.pick(first)
        this.#arrive('read goes on', () => {
          const isRead = (row: TableRow): boolean => Buffer.compare(row.key, key) < 0
          const rest = rows.read({ ...request, limit: undefined }).filter((row) => !isRead(row))
          answer([...first.filter(isRead), ...rest].slice(0, request.limit))
        })
      })
    })
  }

  walk(request: WalkRequest): Promise<WalkedRows> {
    this.calls.read++
    return new Promise((resolve, reject) => {
      const { rows, faults } = this.#table
      this.#arrive('walk', () => {
        if (faults.strikes('table_failed')) return this.#answer('fails', () => reject(unavailable()))
        const { random } = faults
        const rowsMax = random.chance(0.5) ? Number.POSITIVE_INFINITY : 1 + random.below(8)
        const first = rows.walk(request, rowsMax)
        const answer = (walked: WalkedRows): void => this.#answer('rows', () => resolve(walked))
        const limit = request.limit - first.rows.length
        // It ends here, or the rest is read at another moment.
        if (first.left === undefined || limit === 0 || random.chance(0.5)) return answer(first)
        const range = first.left
        this.#arrive('walk goes on', () => {
          const { rows: more, left } = rows.walk({ ...request, range, limit }, Number.POSITIVE_INFINITY)
          answer({ rows: [...first.rows, ...more], left })
        })
      })
    })
  }

  change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): Promise<Changed> {
    this.calls.change++
    return new Promise((resolve) => {
      const { rows, faults } = this.#table
      const apply = (): Changed => rows.change(key, expected, writes)
      const giveUp = (): void => this.#giveUp(() => resolve('unknown'))
      if (faults.strikes('table_lost')) return giveUp()
      const isLate = faults.strikes('table_late')
      if (isLate || faults.strikes('table_twice')) this.#late(apply)
      if (isLate) return giveUp()
      this.#arrive('change', () => {
        const changed = apply()
        if (faults.strikes('table_answer_lost')) return giveUp()
        this.#answer(changed, () => resolve(changed))
      })
    })
  }

  async close(): Promise<void> {}

  #arrive(label: string, run: () => void): void {
    const { scheduler, nature } = this.#table
    scheduler.schedule(nature, this.#hopMs(), `table: ${label} of ${this.#owner.name}`, run)
  }

  #late(apply: () => void): void {
    const { scheduler, nature, faults } = this.#table
    scheduler.schedule(nature, LATE_MS_MAX * faults.random.next() ** 4, `table: late from ${this.#owner.name}`, apply)
  }

  #answer(label: string, settle: () => void): void {
    this.#table.scheduler.schedule(this.#owner, this.#hopMs(), `table answers ${label}`, settle)
  }

  #giveUp(settle: () => void): void {
    const { scheduler, faults } = this.#table
    scheduler.schedule(this.#owner, GIVES_UP_MS * faults.random.next() ** 2, 'table does not answer', settle)
  }

  #hopMs(): number {
    const { random, profile } = this.#table.faults
    return random.chance(0.6) ? 0 : profile.diskMsMax * random.next() ** 4
  }
}

function unavailable(): KvError<'storage_unavailable'> {
  return new KvError('storage_unavailable', 'the simulated table does not answer', {})
}
