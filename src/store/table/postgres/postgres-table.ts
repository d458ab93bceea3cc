import { mergedRanges } from '../../../bytes/key-range.js'
import { keyText } from '../../../bytes/key-text.js'
import { Backoff } from '../../../coordinator/backoff.js'
import { KvError } from '../../../errors/kv-error.js'
import { TABLE_WAIT_MS_MAX } from '../../../limits.js'
import type { FoundLoss } from '../format/format-row.js'
import { isRowOfCluster } from '../layout/row-keys.js'
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
import { changeStatement, transientStatement } from './change-statement.js'
import { ChangingRows } from './changing-rows.js'
import { JOINT_LANES, JointChanges } from './joint-changes.js'
import { Lanes } from './lanes.js'
import { Notifications, type NotificationsOptions } from './notifications.js'
import { leavesAbsent, type PlannedChange, planChange } from './planned-change.js'
import { isPostgres, POSTGRES } from './postgres.js'
import type { PostgresAddress } from './postgres-address.js'
import { kindOf, mayBeOfOneRow, unavailable } from './postgres-failures.js'
import { ask, bytesOf, type PgClient, type Statement, type TextRow } from './postgres-package.js'
import { type Columns, FoundRows, type KeyedRead, ReadStatements, shapeOf } from './read-statements.js'
import { Sessions } from './sessions.js'
import { UNDER_WAY_FAMILY } from './settled.js'

/** Batches of changes at once. The commits of several share an fsync. */
const CHANGE_LANES = 4
/** Batches of reads of single keys. */
const KEY_LANES = 4
/** Reads of ranges, which may take longer, and of long values. */
const LONG_LANES = 4
/** Of changes, and of reads, of rows such as the oracle's, which do not wait behind what users write and read. */
const CLUSTER_LANES = 2
const BATCH_MAX = 256
const BATCH_BYTES_MAX = 1 << 20
const KEYS_PER_READ = 1000
/** Rows that a read of a range looks at in one statement. */
const STEPS_MAX = 256
/** After which a read of single keys looks again at a row that was locked; twice as long each time, up to the second. */
const SETTLE_MS = 1
const SETTLE_MS_MAX = 50
const ZERO = Buffer.of(0)

export interface PostgresTableOptions extends NotificationsOptions {
  readonly waitMs?: number | undefined
  readonly onLoss?: ((loss: FoundLoss) => void) | undefined
}

/** Opens a table, which `requireSoundTable` has looked at. @throws PostgresMissing */
export async function openTable(address: PostgresAddress, options: PostgresTableOptions = {}): Promise<Table> {
  const sessionsMax = CHANGE_LANES + JOINT_LANES + KEY_LANES + LONG_LANES + 2 * CLUSTER_LANES
  const sessions = await Sessions.open(address, { sessionsMax, onWarning: options.onWarning, onLoss: options.onLoss })
  const endsAt = performance.now() + TABLE_WAIT_MS_MAX
  for (const backoff = new Backoff(10, 500); ; await backoff.wait())
    try {
      const [[version] = []] = await sessions.ask({ text: 'select version()' })
      return new PostgresTable(sessions, address, isPostgres(version ?? ''), options)
    } catch (error) {
      if (kindOf(error) !== 'lasting' && performance.now() < endsAt) continue
      await sessions.close()
      throw unavailable(error)
    }
}

interface Waiting<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: unknown) => void
}

interface WaitingRead extends KeyedRead, Waiting<readonly TableRow[]> {
  readonly shape: string
  readonly endsAt: number
  /** The transactions that its first look has met. Younger ones take their commit_ts later than the read has begun. */
  underWay?: ReadonlySet<string>
  settleMs?: number
}

interface WaitingChange extends Waiting<Changed> {
  readonly plan: PlannedChange
  /** Its caller has been told that the outcome is unknown. */
  isGivenUp: boolean
  /** Called when it is given up while a statement has it. */
  onGivenUp?: (() => void) | undefined
}

class PostgresTable implements Table {
  readonly engine = POSTGRES
  /** Round trips, which many requests may share. */
  readonly calls = { read: 0, change: 0 }
  readonly inFlight = { calls: 0, bytes: 0 }
  readonly changeTogether?: ChangeTogether
  readonly broadcast: Notifications
  readonly #sessions: Sessions
  readonly #table: string
  readonly #waitMs: number
  readonly #statements: ReadStatements
  readonly #changing = new ChangingRows()
  readonly #changes = this.#laneOfChanges(CHANGE_LANES)
  readonly #clusterChanges = this.#laneOfChanges(CLUSTER_LANES)
  readonly #reads = new Lanes<WaitingRead>(KEY_LANES, nextReads, (batch) => this.#runReads(batch))
  readonly #clusterReads = new Lanes<WaitingRead>(CLUSTER_LANES, nextReads, (batch) => this.#runReads(batch))
  readonly #longReads = new Lanes<() => Promise<void>>(
    LONG_LANES,
    (queue) => queue.slice(0, 1),
    async ([run]) => run?.(),
  )

  constructor(sessions: Sessions, address: PostgresAddress, isPostgres: boolean, options: PostgresTableOptions) {
    const { waitMs = TABLE_WAIT_MS_MAX } = options
    const { table } = address
    this.broadcast = new Notifications(address, options)
    this.#sessions = sessions
    this.#table = table
    this.#waitMs = waitMs
    if (isPostgres)
      this.changeTogether = new JointChanges({
        ...{ sessions, table, waitMs, changing: this.#changing },
        ask: (client, statement) => this.#counted('change', client, statement),
      }).change
    this.#statements = new ReadStatements(table)
  }

  // ---- Reads

  async rows({ keys = [], ranges = [], columns, limit, settled }: RowsRequest): Promise<readonly TableRow[]> {
    if (columns.length === 0 || limit === 0) return []
    const parts: Promise<readonly TableRow[]>[] = []
    const endsAt = performance.now() + this.#waitMs
    const wanted: Columns = { columns, settled: settled && this.changeTogether !== undefined }
    const distinct = [...new Map(keys.map((key) => [keyText(key), key])).values()]
    for (let from = 0; from < distinct.length; from += KEYS_PER_READ)
      parts.push(this.#rowsOfKeys(distinct.slice(from, from + KEYS_PER_READ), wanted, endsAt))
    // A row in two ranges could be read at two moments, and be none of both.
    const some = mergedRanges(ranges.filter(isNotEmpty)) as readonly RowRange[]
    if (some.length > 0) parts.push(this.#rowsOfRanges(some, wanted, endsAt, limit))
    const [first = [], ...others] = await Promise.all(parts)
    if (others.length === 0) return limit === undefined ? first : first.slice(0, limit)
    const found = new Map<string, TableRow>()
    for (const rows of [first, ...others]) for (const row of rows) found.set(keyText(row.key), row)
    return [...found.values()].sort((a, b) => Buffer.compare(a.key, b.key)).slice(0, limit)
  }

  #rowsOfKeys(keys: readonly Buffer[], wanted: Columns, endsAt: number): Promise<readonly TableRow[]> {
    // Long values would make a shared answer long.
    if (wanted.settled !== true && wanted.columns.some(({ family }) => family === 'd'))
      return this.#long(endsAt, async () => (await this.#readKeys([{ keys, wanted }], endsAt))[0]?.rows() ?? [])
    const shape = shapeOf(wanted)
    const lanes = keys.every(isRowOfCluster) ? this.#clusterReads : this.#reads
    return new Promise((resolve, reject) => lanes.add({ keys, wanted, shape, endsAt, resolve, reject }))
  }

  async #rowsOfRanges(
    ranges: readonly RowRange[],
    wanted: Columns,
    endsAt: number,
    limit = Number.POSITIVE_INFINITY,
  ): Promise<readonly TableRow[]> {
    const found = new FoundRows()
    const steps = Math.min(limit, STEPS_MAX)
    for (let left = ranges; left.length > 0; ) {
      left = await this.#look(left, wanted, { steps, reverse: false, endsAt }, found)
      // The rows of earlier ranges count for the limit only if they were looked at to the end.
      if (ranges.length === 1 && found.size >= limit) break
    }
    return found.rows({ limit })
  }

  /** Looks at as many rows as it may find. `TableScan` asks for more where it finds few. */
  async walk({ range, limit, reverse = false, columns, orBare, settled }: WalkRequest): Promise<WalkedRows> {
    const found = new FoundRows()
    const wanted: Columns = { columns, orBare, settled: settled && this.changeTogether !== undefined }
    const steps = Math.max(1, Math.min(limit, STEPS_MAX))
    const endsAt = performance.now() + this.#waitMs
    const left = isNotEmpty(range) ? await this.#look([range], wanted, { steps, reverse, endsAt }, found) : []
    return { rows: found.rows({ reverse }), left: left[0] }
  }

  /** @returns what is left of the ranges. */
  async #look(
    ranges: readonly RowRange[],
    wanted: Columns,
    { steps, reverse, endsAt }: { readonly steps: number; readonly reverse: boolean; readonly endsAt: number },
    found: FoundRows,
  ): Promise<readonly RowRange[]> {
    const statement = this.#statements.ofRanges(ranges, wanted, steps, reverse)
    const rows = await this.#settledLook(() => this.#long(endsAt, () => this.#read(statement, endsAt)), endsAt)
    const left: RowRange[] = []
    for (const row of rows) {
      const [key, family, stop, start] = row.map((text) => text ?? undefined)
      if (key === undefined) continue
      if (family !== undefined) found.add(key.slice(2), row)
      else
        left.push(
          leftOf(
            { start: bytesOf(start ?? ''), end: stop === undefined ? undefined : bytesOf(stop) },
            bytesOf(key),
            reverse,
          ),
        )
    }
    return left.filter(isNotEmpty)
  }

  /** Looks again until the transactions have ended that its first look has met. */
  async #settledLook(look: () => Promise<readonly TextRow[]>, endsAt: number): Promise<readonly TextRow[]> {
    const backoff = new Backoff(1, 50)
    for (let met: ReadonlySet<string> | undefined; ; ) {
      const rows = await look()
      const found = new FoundRows()
      for (const row of rows) if (row[1] === UNDER_WAY_FAMILY) found.add('', row)
      met = stillUnderWay(found, met)
      if (met.size === 0) return rows
      if (performance.now() >= endsAt) throw late()
      await backoff.wait(endsAt - performance.now())
    }
  }

  #long<T>(endsAt: number, body: () => Promise<T>): Promise<T> {
    const run = (): Promise<T> => (performance.now() < endsAt ? body() : Promise.reject(late()))
    return new Promise((resolve, reject) => this.#longReads.add(() => run().then(resolve, reject)))
  }

  async #runReads(batch: readonly WaitingRead[]): Promise<void> {
    const now = performance.now()
    const reads = batch.filter(({ endsAt }) => now < endsAt)
    for (const { endsAt, reject } of batch) if (now >= endsAt) reject(late())
    if (reads.length === 0) return
    try {
      const found = await this.#readKeys(reads, Math.min(...reads.map(({ endsAt }) => endsAt)))
      for (const [i, read] of reads.entries()) {
        const rows = found[i] as FoundRows
        read.underWay = stillUnderWay(rows, read.underWay)
        if (read.underWay.size === 0) read.resolve(rows.rows())
        else {
          read.settleMs = Math.min(SETTLE_MS_MAX, 2 * (read.settleMs ?? SETTLE_MS / 2))
          setTimeout(() => this.#reads.add(read), read.settleMs)
        }
      }
    } catch (error) {
      for (const { reject } of reads) reject(error)
    }
  }

  /** Returns the rows of `reads[i]`, which all have one shape. */
  async #readKeys(reads: readonly KeyedRead[], endsAt: number): Promise<readonly FoundRows[]> {
    const found = reads.map(() => new FoundRows())
    const keys = reads.flatMap(({ keys }, read) => keys.map((key) => ({ key, read })))
    for (const row of await this.#read(this.#statements.ofKeys(reads), endsAt)) {
      const { key, read = 0 } = keys[Number(row[0]) - 1] ?? {}
      if (key !== undefined) found[read]?.add(key.toString('hex'), row)
    }
    return found
  }

  async #read(statement: Statement, endsAt: number): Promise<readonly TextRow[]> {
    const backoff = new Backoff(10, 500)
    for (;;)
      try {
        return await this.#sessions.with((client) => this.#counted('read', client, statement))
      } catch (error) {
        if (kindOf(error) === 'lasting' || performance.now() >= endsAt) throw unavailable(error)
        await backoff.wait(endsAt - performance.now())
      }
  }

  // ---- Changes

  change(
    key: Buffer,
    expected: Expected,
    writes: readonly RowWrite[] | 'remove',
    withinMs: number = this.#waitMs,
  ): Promise<Changed> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        waiting.isGivenUp = true
        waiting.onGivenUp?.()
        resolve('unknown')
      }
      const timer = setTimeout(giveUp, Math.min(withinMs, this.#waitMs))
      const waiting: WaitingChange = {
        plan: planChange(key, expected, writes),
        isGivenUp: false,
        resolve(changed) {
          clearTimeout(timer)
          resolve(changed)
        },
        reject(error) {
          clearTimeout(timer)
          reject(error)
        },
      }
      const lanes = isRowOfCluster(key) ? this.#clusterChanges : this.#changes
      lanes.add(waiting)
    })
  }

  #laneOfChanges(lanes: number): Lanes<WaitingChange> {
    const made = new Lanes<WaitingChange>(
      lanes,
      (queue) => this.#nextChanges(queue),
      (batch) => this.#runChanges(batch),
    )
    this.#changing.onFree(() => made.fill())
    return made
  }

  #nextChanges(queue: readonly WaitingChange[]): readonly WaitingChange[] {
    const batch: WaitingChange[] = []
    const rows = new Set<string>()
    let bytes = 0
    for (const waiting of queue) {
      const { key, bytes: own } = waiting.plan
      const row = keyText(key)
      if (this.#changing.has(row) || rows.has(row)) continue
      bytes += own
      if (batch.length === BATCH_MAX || (batch.length > 0 && bytes > BATCH_BYTES_MAX)) break
      rows.add(row)
      batch.push(waiting)
    }
    return batch
  }

  async #runChanges(batch: readonly WaitingChange[]): Promise<void> {
    // Batches that lock their rows in one order do not wait for each other in a circle.
    const changes = batch.filter(({ isGivenUp }) => !isGivenUp).sort((a, b) => Buffer.compare(a.plan.key, b.plan.key))
    if (changes.length === 0) return
    const rows = changes.map(({ plan }) => keyText(plan.key))
    this.#changing.hold(rows, changes)
    // The connection may be dead, which takes seconds to show: nobody waits for it once nobody wants its answer.
    const allGivenUp = new Promise<never>((_, reject) => {
      for (const change of changes)
        change.onGivenUp = () => {
          this.#changing.free([keyText(change.plan.key)], changes)
          if (changes.every(({ isGivenUp }) => isGivenUp)) reject(new Error('all changes were given up'))
        }
    })
    try {
      const changed = this.#sessions.with((client) => Promise.race([this.#changeAll(client, changes), allGivenUp]))
      await Promise.race([changed, allGivenUp]) // A connection may be long in the making.
    } catch (error) {
      const isCertain = kindOf(error) === 'lasting'
      for (const { resolve, reject } of changes) isCertain ? reject(unavailable(error)) : resolve('unknown')
    } finally {
      this.#changing.free(rows, changes)
    }
  }

  /** What is wrong with one row fails the whole statement, so its halves are repeated apart. @throws errors of `pg` */
  async #changeAll(client: PgClient, changes: readonly WaitingChange[]): Promise<void> {
    const backoff = new Backoff()
    while (!changes.every(({ isGivenUp }) => isGivenUp))
      try {
        const done = await this.#changeTogether(
          client,
          changes.map(({ plan }) => plan),
        )
        for (const { plan, resolve } of changes) resolve(done.has(plan.key.toString('hex')) ? 'done' : 'refused')
        return
      } catch (error) {
        if (!mayBeOfOneRow(error)) throw error
        if (changes.length > 1) {
          const half = changes.length >> 1
          await this.#changeAll(client, changes.slice(0, half))
          return this.#changeAll(client, changes.slice(half))
        }
        if (kindOf(error) !== 'conflict') return changes[0]?.reject(unavailable(error))
        await backoff.wait()
      }
  }

  /** @returns the keys of the rows that are changed, in hexadecimal digits. */
  async #changeTogether(client: PgClient, changes: readonly PlannedChange[]): Promise<ReadonlySet<string>> {
    const run = (statement: Statement) => this.#counted('change', client, statement)
    const statement = changeStatement(this.#table, changes, { isWitnessed: this.#sessions.isWitnessed(client) })
    const transient = changes.filter(leavesAbsent)
    const committed = (rows: readonly TextRow[]): ReadonlySet<string> => {
      this.#sessions.noteCommit(client, rows)
      return keysIn(rows)
    }
    if (transient.length === 0) return committed(await run(statement))
    try {
      await run({ text: 'begin' })
      const rows = await run(statement)
      const done = keysIn(rows)
      const left = transient.filter(({ key }) => done.has(key.toString('hex')))
      if (left.length > 0) await run(transientStatement(this.#table, left))
      await run({ text: 'commit' })
      return committed(rows)
    } catch (error) {
      if (mayBeOfOneRow(error)) await run({ text: 'rollback' })
      throw error
    }
  }

  async #counted(kind: keyof Table['calls'], client: PgClient, statement: Statement): Promise<readonly TextRow[]> {
    const bytes = statement.values?.reduce<number>((sum, value) => sum + (Buffer.isBuffer(value) ? value.length : 0), 0)
    this.calls[kind]++
    this.inFlight.calls++
    this.inFlight.bytes += bytes ?? 0
    try {
      return await ask(client, statement)
    } finally {
      this.inFlight.calls--
      this.inFlight.bytes -= bytes ?? 0
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.broadcast.close(), this.#sessions.close()])
  }
}

/** @param met undefined in the first look. */
function stillUnderWay({ underWay }: FoundRows, met: ReadonlySet<string> | undefined): ReadonlySet<string> {
  return met === undefined ? underWay : new Set([...underWay].filter((holder) => met.has(holder)))
}

function late(): KvError {
  return new KvError('storage_unavailable', 'PostgreSQL has not answered in time', {})
}

/** Reads of the shape of the oldest. */
function nextReads(queue: readonly WaitingRead[]): readonly WaitingRead[] {
  const batch: WaitingRead[] = []
  let keys = 0
  for (const waiting of queue) {
    if (waiting.shape !== queue[0]?.shape) continue
    keys += waiting.keys.length
    if (batch.length > 0 && keys > BATCH_MAX) break
    batch.push(waiting)
  }
  return batch
}

function leftOf({ start, end }: RowRange, key: Buffer, reverse: boolean): RowRange {
  return reverse ? { start, end: key } : { start: Buffer.concat([key, ZERO]), end }
}

function isNotEmpty({ start, end }: RowRange): boolean {
  return end === undefined || Buffer.compare(start, end) < 0
}

function keysIn(rows: readonly TextRow[]): ReadonlySet<string> {
  return new Set(rows.map(([key]) => (key ?? '').slice(2)))
}
