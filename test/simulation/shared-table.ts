import { KvError } from '../../src/errors/kv-error.js'
import { BIGTABLE } from '../../src/store/table/bigtable/bigtable.js'
import { encodeFormat, FORMAT_KEY, NEWEST_FORMAT } from '../../src/store/table/format/format-row.js'
import { RECORD } from '../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../src/store/table/layout/row-keys.js'
import type {
  Changed,
  ChangeTogether,
  Expected,
  RowCondition,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../../src/store/table/layout/table.js'
import { encodeSafePoint } from '../../src/store/table/rows/safe-point-record.js'
import { type Hold, RowHolds } from '../store/table/row-holds.js'
import { TableRows } from '../store/table/table-rows.js'
import type { Faults } from './faults.js'
import type { Ledger } from './ledger.js'
import type { Owner, Scheduler } from './scheduler.js'

/** After how long a server at the latest gives an answer up that does not come. */
const GIVES_UP_MS = 5000
/** A change that is late, or a copy of it, is done within this time. */
const LATE_MS_MAX = 30_000
/** How long a transaction at most waits for a connection. */
const QUEUED_MS_MAX = 500
/** How long the table at most takes to find out that a server is gone, or has asked for nothing for too long. */
const LOOKS_MS_MAX = 4000

/** A transaction of several rows in the table. */
class Session {
  /** The server has dropped the connection. */
  isLeft = false
  isOver = false
  readonly #hold: Hold

  constructor(hold: Hold) {
    this.#hold = hold
  }

  /** One that was rolled back is answered with an error. */
  commit(write: () => void): Changed {
    if (this.isOver) return 'unknown'
    write()
    this.end()
    return 'done'
  }

  end(): void {
    this.isOver = true
    this.#hold.end()
  }
}

/** The table of all servers. What a server has sent arrives when it may be dead; what is answered arrives while it lives and runs. */
export class SharedTable {
  readonly rows: TableRows
  readonly holds = new RowHolds()
  /** Transactions of several rows: how many were begun, and how many committed. */
  readonly joint = { begun: 0, committed: 0 }

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
  readonly changeTogether?: ChangeTogether

  constructor(table: SharedTable, owner: Owner) {
    this.#table = table
    this.#owner = owner
    if (table.faults.profile.changesTogether) this.changeTogether = (rows, writes) => this.#changeTogether(rows, writes)
  }

  rows(request: RowsRequest): Promise<readonly TableRow[]> {
    this.calls.read++
    return new Promise((resolve, reject) => {
      const { rows, faults } = this.#table
      this.#arriveToRead('read', request, () => {
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
      this.#arriveToRead('walk', request, () => {
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
      const { rows, holds, faults } = this.#table
      const apply = (): Changed => rows.change(key, expected, writes)
      const giveUp = (): void => this.#giveUp(() => resolve('unknown'))
      if (faults.strikes('table_lost')) return giveUp()
      const isLate = faults.strikes('table_late')
      if (isLate || faults.strikes('table_twice')) this.#late(() => holds.whenFree([key], apply))
      if (isLate) return giveUp()
      this.#arrive('change', () =>
        holds.whenFree([key], () => {
          const changed = apply()
          if (faults.strikes('table_answer_lost')) return giveUp()
          this.#answer(changed, () => resolve(changed))
        }),
      )
    })
  }

  /** Three steps, any of which may be the last that is heard of the server: the locks, what it writes, and the commit. */
  #changeTogether(expected: readonly RowCondition[], writes: Parameters<ChangeTogether>[1]): Promise<Changed> {
    this.calls.change++
    return new Promise((resolve, reject) => {
      const { rows, holds, faults, scheduler, nature } = this.#table
      const keys = expected.map(({ key }) => key)
      const giveUp = (): void => this.#giveUp(() => resolve('unknown'))
      const rollBack = (session: Session, settle: () => void): void =>
        this.#arrive('rollback', () => {
          session.end()
          this.#answer('rolled back', settle)
        })
      const goOn = (session: Session): void => {
        writes().then(
          (all) => {
            if (all === undefined) return rollBack(session, () => resolve('refused'))
            const write = (): void => {
              for (const [i, key] of keys.entries()) rows.write(key, all[i] ?? [])
              this.#table.joint.committed++
            }
            this.#commit(session, write, resolve)
          },
          (error: unknown) => rollBack(session, () => reject(error)),
        )
      }
      if (faults.strikes('table_lost')) return giveUp()
      const lock = (): void =>
        holds.whenFree(keys, () => {
          if (!expected.every((each) => rows.isAs(each.key, each.expected)))
            return this.#answer('refused', () => resolve('refused'))
          const session = new Session(holds.take(keys))
          this.#table.joint.begun++
          this.#watch(session)
          if (!faults.strikes('table_answer_lost')) return this.#answer('locked', () => goOn(session))
          session.isLeft = true
          giveUp()
        })
      // Now and then no connection is free for long.
      const queuedMs = faults.random.chance(0.2) ? QUEUED_MS_MAX * faults.random.next() : 0
      scheduler.schedule(nature, queuedMs, `table: a connection of ${this.#owner.name}`, () =>
        this.#arrive('locks', lock),
      )
    })
  }

  #commit(session: Session, write: () => void, resolve: (changed: Changed) => void): void {
    const { faults } = this.#table
    const giveUp = (): void => this.#giveUp(() => resolve('unknown'))
    if (faults.strikes('table_lost')) {
      session.isLeft = true
      giveUp()
    } else if (faults.strikes('table_late')) {
      this.#late(() => session.commit(write))
      giveUp()
    } else
      this.#arrive('commit', () => {
        const changed = session.commit(write)
        if (faults.strikes('table_answer_lost')) giveUp()
        else this.#answer(changed, () => resolve(changed))
      })
  }

  /** Rolls a transaction back when its server is found gone, or has asked for nothing for too long. */
  #watch(session: Session): void {
    const { scheduler, nature, faults } = this.#table
    const idleAtMs = scheduler.nowMs + faults.profile.idleMs
    const look = (): void => {
      if (session.isOver) return
      if (session.isLeft || !this.#owner.isAlive || scheduler.nowMs >= idleAtMs) session.end()
      else lookLater()
    }
    const lookLater = (): void => {
      scheduler.schedule(nature, 1 + LOOKS_MS_MAX * faults.random.next() ** 2, 'table looks for the gone', look)
    }
    lookLater()
  }

  async close(): Promise<void> {}

  #arriveToRead(label: string, request: RowsRequest | WalkRequest, run: () => void): void {
    this.#arrive(label, () => {
      if (request.settled) this.#table.holds.whenSettled(request, run)
      else run()
    })
  }

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
