import { Database } from '../../src/database/database.js'
import { KvError } from '../../src/errors/kv-error.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { Clock } from '../../src/oracle/clock.js'
import { Oracle } from '../../src/oracle/oracle.js'
import { encodeOracleRecord } from '../../src/oracle/oracle-row.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import { BIGTABLE } from '../../src/store/table/bigtable/bigtable.js'
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
import { type TableOracle, TableStore } from '../../src/store/table/table-store.js'
import { WaitGraph } from '../../src/store/table/waits/wait-graph.js'
import { WaitReports } from '../../src/store/table/waits/wait-reports.js'
import type { Timestamp } from '../../src/timestamp.js'
import { Random } from '../anomalies/random.js'
import { isPending, Owner, type ScheduledEvent, Scheduler } from '../simulation/scheduler.js'
import { checkRows } from '../simulation/table-checks.js'
import { Violations } from '../simulation/violations.js'
import { installVirtualGlobals } from '../simulation/virtual-globals.js'
import { TableRows } from '../store/table/table-rows.js'
import { type Decisions, everySchedule } from './schedules.js'
import type { Searched } from './search.js'

/** 14 November 2023. */
const START_MS = 1_700_000_000_000
/** Longer than locks, leases and claims last. */
const STALL_MS = 60_000
const LATE_MS = 10_000
/** A program that takes more does not come to its end. */
const STEPS_MAX = 20_000

/** @returns what is wrong at the end; undefined: nothing. */
export type TableWorld = (servers: TableServers) => Promise<string | undefined>

type Program = readonly [server: number, body: (database: Database) => Promise<void>]

/** Several servers of the program itself on one table in memory: what their calls meet, and in which order they come, is decided from outside. */
class TableServers {
  readonly rows = new TableRows()
  readonly nature = new Owner('the table')
  readonly random = new Random(1)
  readonly scheduler: Scheduler
  readonly #decisions: Decisions
  readonly #clock: Clock
  readonly #oracle: Oracle
  readonly #graph = new WaitGraph()
  readonly #owners: Owner[] = []
  readonly #databases: Database[] = []
  #isDeciding = false
  /** What failed without anybody who could be told. */
  readonly violations = new Violations()

  constructor(scheduler: Scheduler, decisions: Decisions) {
    this.scheduler = scheduler
    this.#decisions = decisions
    this.#clock = new Clock({ now: Date.now, monotonicNow: () => scheduler.nowMs })
    const save = async (mark: Timestamp): Promise<void> => {
      const value = Buffer.from(encodeOracleRecord({ epoch: 1, url: '', id: '', mark, beat: mark }))
      this.rows.write(rowKeyOfSystem('oracle'), [{ family: 'o', qualifier: RECORD, value }])
    }
    this.#oracle = new Oracle({ savedMark: 0, save, clock: this.#clock })
  }

  get ts(): Timestamp {
    return this.#oracle.last
  }

  /** A server on a machine that is sound. */
  async open(): Promise<number> {
    const index = this.#owners.length
    const owner = new Owner(`server ${'ABCDEFG'[index]}`)
    this.#owners.push(owner)
    await this.#drive([
      this.#start(owner, async () => {
        const link = new Link(this, owner)
        const store = new TableStore({
          ...{ table: link, oracle: this.#oracleOf(link), clock: this.#clock, cacheBytesMax: 100_000 },
          ...{ answers: new AnswerBudget(DEFAULT_LIMITS), cursorSecret: Buffer.from('secret') },
          waits: new WaitReports({ send: async (report) => this.#graph.report(owner.name, report) }),
        })
        const onError = (message: string, error: unknown): void => {
          if (!(error instanceof KvError)) this.#defect(error, message)
        }
        this.#databases[index] = await Database.open(store, { limits: DEFAULT_LIMITS, onError })
      }),
    ])
    return index
  }

  /** Runs programs of servers at the same time, and lets what may go wrong with them go wrong. */
  async decided(...programs: readonly Program[]): Promise<void> {
    this.#isDeciding = true
    await this.together(...programs)
    this.#isDeciding = false
    await this.pass(2 * STALL_MS)
  }

  /** Runs programs of servers that live, to their ends. */
  together(...programs: readonly Program[]): Promise<void> {
    return this.#drive(
      programs.map(([server, body]) =>
        this.#start(this.#owners[server] as Owner, () => body(this.#databases[server] as Database)),
      ),
    )
  }

  /** All that is on its way arrives, and what lasts for a time ends. Timers that would have come several times come once. */
  async pass(ms: number): Promise<void> {
    let isOver = false
    this.scheduler.nowMs += ms
    this.scheduler.schedule(this.nature, 1, 'time has passed', () => {
      isOver = true
    })
    await this.#drive([{ isOver: () => isOver }])
  }

  /** Nothing of them is run any more. */
  end(): void {
    for (const owner of [this.nature, ...this.#owners]) owner.isAlive = false
  }

  #defect(error: unknown, what = 'a program'): void {
    this.violations.add('defect', `${what}: ${error instanceof Error ? error.stack : error}`)
  }

  #start(owner: Owner, body: () => Promise<void>): { readonly isOver: () => boolean } {
    let isDone = false
    this.scheduler.schedule(owner, 0, 'begins', () => {
      body()
        .catch((error: unknown) => {
          const isRefusal = error instanceof KvError && error.code !== 'internal'
          if (!isRefusal) this.#defect(error)
        })
        .finally(() => {
          isDone = true
        })
    })
    return { isOver: () => isDone || !owner.isAlive }
  }

  async #drive(programs: readonly { readonly isOver: () => boolean }[]): Promise<void> {
    const until = this.scheduler.steps + STEPS_MAX
    while (!programs.every((program) => program.isOver())) {
      if (this.scheduler.steps < until && (await this.scheduler.step())) continue
      this.violations.add('stuck', 'a program does not come to its end')
      return
    }
  }

  /** As a rule a program goes on until it waits for time, and what is late comes last. */
  pick(due: readonly ScheduledEvent[]): number {
    const firsts = new Map<Owner, ScheduledEvent>()
    for (const event of due) {
      if (!isPending(event)) continue
      const first = firsts.get(event.owner)
      if (first === undefined || event.id < first.id) firsts.set(event.owner, event)
    }
    const rank = (owner: Owner): number =>
      owner === this.scheduler.current ? -1 : owner === this.nature ? this.#owners.length : this.#owners.indexOf(owner)
    const owners = [...firsts.keys()].sort((a, b) => rank(a) - rank(b))
    const [first] = owners
    if (first === undefined) return 0
    const ways = owners.map((owner) => `${owner.name} goes on: ${firsts.get(owner)?.label}`) as [string, ...string[]]
    const owner = owners[ways.indexOf(this.decide(ways))] ?? first
    return due.indexOf(firsts.get(owner) as ScheduledEvent)
  }

  decide<T extends string>(ways: readonly [T, ...T[]], where = ''): T {
    return this.#isDeciding ? this.#decisions.next(ways, where) : ways[0]
  }

  /** A timestamp is a call to another process, too. */
  #oracleOf(link: Link): TableOracle {
    const oracle = this.#oracle
    return {
      get last() {
        return oracle.last
      },
      get state() {
        return oracle.state
      },
      clock: () => oracle.clock(),
      now: () => oracle.now(),
      ago: (ms) => oracle.ago(ms),
      next: (count) => link.call('tso', () => oracle.next(count)),
      nextForClient: (count) => link.call('tso', () => oracle.nextForClient(count)),
      observe: (ts) => oracle.observe(ts),
      close: async () => {},
    }
  }
}

/** What becomes of a call. */
type Way = 'goes on' | 'its answer is lost' | 'is late' | 'is very late' | 'stalls before it' | 'dies after it'

/** The table as one server has it open. A call and its answer are one step. */
class Link implements Table {
  readonly engine = BIGTABLE
  readonly calls = { read: 0, change: 0 }
  readonly inFlight = { calls: 0, bytes: 0 }
  readonly #servers: TableServers
  readonly #owner: Owner

  constructor(servers: TableServers, owner: Owner) {
    this.#servers = servers
    this.#owner = owner
  }

  call<T>(label: string, run: () => T | Promise<T>): Promise<T> {
    return this.#call(label, ['goes on', 'stalls before it'], async (settle) => settle(await run()))
  }

  rows(request: RowsRequest): Promise<readonly TableRow[]> {
    return this.call('a read', () => this.#servers.rows.read(request))
  }

  walk(request: WalkRequest): Promise<WalkedRows> {
    return this.call('a read', () => this.#servers.rows.walk(request, Number.POSITIVE_INFINITY))
  }

  change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): Promise<Changed> {
    const { rows, scheduler, nature } = this.#servers
    const label = `a change of ${shown(key)}`
    const ways = [
      'goes on',
      'its answer is lost',
      'is late',
      'is very late',
      'stalls before it',
      'dies after it',
    ] as const
    return this.#call(label, ways, (settle, way) => {
      const apply = (): Changed => rows.change(key, expected, writes)
      const isLate = way === 'is late' || way === 'is very late'
      if (isLate) scheduler.schedule(nature, way === 'is late' ? 0 : LATE_MS, `${label} that was late`, apply)
      const changed = isLate ? 'unknown' : apply()
      settle(way === 'its answer is lost' ? 'unknown' : changed)
    })
  }

  async close(): Promise<void> {}

  #call<T>(
    label: string,
    ways: readonly [Way, ...Way[]],
    run: (settle: (answer: T) => void, way: Way) => unknown,
  ): Promise<T> {
    const { scheduler } = this.#servers
    return new Promise((resolve) => {
      scheduler.schedule(this.#owner, 0, label, () => {
        const way = this.#servers.decide(ways, `${this.#owner.name}: ${label}: `)
        if (way === 'stalls before it') {
          this.#owner.pausedUntilMs = scheduler.nowMs + STALL_MS
          scheduler.schedule(this.#owner, STALL_MS, label, () => run(resolve, 'goes on'))
        } else if (way === 'dies after it') {
          run(() => {}, 'goes on')
          this.#owner.isAlive = false
        } else run(resolve, way)
      })
    })
  }
}

function shown(key: Buffer): string {
  return key.toString('latin1').replace(/[^ -~]+/g, '.')
}

/** Every run of a world that deviates so often at most. */
export async function searchTable(world: TableWorld, deviationsMax: number): Promise<Searched> {
  let servers: TableServers | undefined
  const scheduler = new Scheduler((due) => servers?.pick(due) ?? 0, new Owner('nobody'))
  const random = { next: () => servers?.random.next() ?? 0, below: (end: number) => servers?.random.below(end) ?? 0 }
  const wallMs = (): number => START_MS + Math.floor(scheduler.nowMs)
  const restore = installVirtualGlobals(scheduler, random, wallMs, () => 0)
  try {
    return await everySchedule(async (decisions) => {
      scheduler.nowMs = Math.ceil(scheduler.nowMs) // In each run it is the same fraction of a millisecond.
      servers = new TableServers(scheduler, decisions)
      try {
        const wrong = await world(servers)
        await checkRows(servers.rows, servers.violations)
        return wrong ?? servers.violations.all[0]?.detail
      } finally {
        servers.end()
      }
    }, deviationsMax)
  } finally {
    await restore()
  }
}
