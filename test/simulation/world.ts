import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { Random } from '../anomalies/random.js'
import { checkAttached } from './attached-checks.js'
import { Disk } from './disk.js'
import {
  checkChangeLog,
  checkCollected,
  checkColumnFamilies,
  checkExpiryEntries,
  checkNoneAttached,
  lockedKeys,
} from './disk-checks.js'
import { drawProfile, Faults, type Profile, type StoreName } from './faults.js'
import { History } from './history.js'
import { checkLeases } from './lease-checks.js'
import { type LeaseBooks, LeaseLedger } from './lease-ledger.js'
import { Ledger } from './ledger.js'
import { Network } from './network.js'
import { REMOVED } from './raw-client.js'
import { checkRuns } from './run-checks.js'
import type { RunningServer } from './running-server.js'
import { Owner, Scheduler } from './scheduler.js'
import { Server } from './server.js'
import { SharedLeaseLedger } from './shared-lease-ledger.js'
import { SharedServers } from './shared-servers.js'
import { SharedTable } from './shared-table.js'
import { checkReads } from './snapshot-checks.js'
import { checkRows, lockedRows } from './table-checks.js'
import { type Violation, Violations } from './violations.js'
import { installVirtualGlobals } from './virtual-globals.js'
import { Client } from './workload.js'
import { checkWrites } from './write-checks.js'

/** 14 November 2023: where the simulated clock begins. */
const START_MS = 1_700_000_000_000
/** By small steps the clock is set wrong by so much at most: some come while the server is down, and count as time then. */
const CLOCK_OFFSET_MS_MAX = 120_000
/** One that the server sees: pins and outcomes of idempotent requests would not outlive it. */
const FAR_STEP_MS = 3_600_000
/** Events that the end may take. */
const END_STEPS_MAX = 200_000

export interface Options {
  readonly seed: number
  /** Events until no new transaction is begun and no new fault strikes. */
  readonly steps: number
  /** Default `leveldb`, with all faults. */
  readonly store?: StoreName
  readonly trace?: ((line: string) => void) | undefined
}

export interface Outcome {
  readonly seed: number
  readonly profile: Profile
  readonly violations: readonly Violation[]
  /** Of all that happened: equal for equal seeds. */
  readonly hash: string
  /** Faults, programs and ends of transactions, by name. */
  readonly counts: Readonly<Record<string, number>>
}

/** One world: a seed says all of what happens in it. */
export async function simulate({ seed, steps, store = 'leveldb', trace }: Options): Promise<Outcome> {
  const random = new Random(seed)
  const profile = drawProfile(random.fork(), store)
  const faults = new Faults(random.fork(), profile)
  const nature = new Owner('nature')
  const picks = new Random(random.below(2 ** 31))
  const scheduler = new Scheduler((due) => picks.below(due.length), nature, trace)
  const world = new World(scheduler, faults, nature)
  const restore = installVirtualGlobals(scheduler, random.fork(), world.wallMs, () => faults.timerLateMs())
  const onRejection = (error: unknown): void =>
    world.violations.add('defect', `nobody awaits ${error instanceof Error ? error.stack : String(error)}`)
  process.on('unhandledRejection', onRejection)
  try {
    await world.run(steps)
  } finally {
    process.off('unhandledRejection', onRejection)
    await restore()
  }
  const hash = (scheduler.hash >>> 0).toString(16).padStart(8, '0')
  return { seed, profile, violations: world.violations.all, hash, counts: world.counts() }
}

class World {
  readonly violations = new Violations()
  readonly #scheduler: Scheduler
  readonly #faults: Faults
  readonly #nature: Owner
  readonly #ledger: Ledger
  readonly #leases: LeaseBooks
  readonly #disk: Disk
  readonly #history: History
  readonly #counts = new Map<string, number>()
  /** Those that run programs until they die. */
  readonly #clients: Client[] = []
  #clientsMade = 0
  #servers: readonly Server[] = []
  /** Of several servers, where there are feeds: follow all changes from the beginning. No fault strikes them themselves. */
  #readers: readonly Client[] = []
  /** Of several servers. */
  readonly #table: SharedTable
  #network: Network | undefined
  #clockOffsetMs = 0
  #farOffsetMs = 0
  /** The server has not saved yet that the clock has stepped far: if it dies now, it has been down for so long. */
  #isFarStepUnsaved = false
  #isEnding = false

  constructor(scheduler: Scheduler, faults: Faults, nature: Owner) {
    this.#scheduler = scheduler
    this.#faults = faults
    this.#nature = nature
    this.#ledger = new Ledger(this.violations, this.#isShared)
    this.#leases = new (this.#isShared ? SharedLeaseLedger : LeaseLedger)(this.violations)
    this.#disk = new Disk(this.#ledger)
    this.#history = new History(scheduler, this.violations)
    this.#table = new SharedTable(scheduler, faults, nature, this.#ledger)
  }

  get #isShared(): boolean {
    return this.#faults.profile.store === 'shared'
  }

  readonly wallMs = (): number => {
    const { nowMs, current } = this.#scheduler
    return START_MS + Math.floor(nowMs) + this.#clockOffsetMs + this.#farOffsetMs + current.clockOffsetMs
  }

  async run(steps: number): Promise<void> {
    const parts = {
      scheduler: this.#scheduler,
      faults: this.#faults,
      ledger: this.#ledger,
      leases: this.#leases,
      violations: this.violations,
    }
    const shared = this.#isShared
      ? new SharedServers(this.#scheduler, this.#faults, this.#table, this.violations)
      : undefined
    const home = { ...parts, shared, disk: this.#disk, wallMs: this.wallMs, nature: this.#nature }
    const { servers } = this.#faults.profile
    this.#servers = Array.from(
      { length: servers },
      (_, i) => new Server(home, servers === 1 ? 'server' : `server-${i}`),
    )
    const network = new Network(this.#scheduler, this.#faults, () => this.#anyServer, new Owner('wire'))
    this.#network = network
    for (let i = 0; i < this.#faults.profile.coordinators; i++) this.#startClient()
    if (shared !== undefined && this.#faults.profile.feeds) this.#startReaders()
    const stepsMax = steps * this.#faults.profile.stepsFactor
    while (this.#scheduler.steps < stepsMax && this.violations.all.length === 0) {
      await this.#scheduler.step()
      this.#strike(network)
    }
    await this.#end()
    if (this.violations.all.length > 0) return
    const isDurable = this.#faults.profile.durability === 'sync'
    checkReads(this.#history, this.#ledger, this.violations)
    checkWrites(this.#history, this.#ledger, isDurable, this.violations)
    checkRuns(this.#history, this.#ledger, this.violations)
    checkLeases(this.#history, this.#ledger, this.#leases, this.violations)
    checkAttached(this.#history, this.#ledger, this.#leases, this.violations)
  }

  counts(): Record<string, number> {
    const counts: Record<string, number> = {}
    const add = (name: string, by = 1): void => {
      counts[name] = (counts[name] ?? 0) + by
    }
    add('steps', this.#scheduler.steps)
    add('calls', this.#network?.calls)
    for (const { starts } of this.#servers) add('server_starts', starts)
    add('runs', this.#ledger.cells.runs.length)
    add('grants', this.#leases.grants)
    add('joint_changes_begun', this.#table.joint.begun)
    add('joint_changes_committed', this.#table.joint.committed)
    add('virtual_seconds', Math.round(this.#scheduler.nowMs / 1000))
    for (const [name, count] of this.#faults.counts) add(`fault ${name}`, count)
    for (const [name, count] of this.#counts) add(`program ${name}`, count)
    for (const { kind, outcome } of this.#history.txns) add(`txn ${kind} ${outcome}`)
    return counts
  }

  #startClient(): void {
    const client = this.#newClient()
    if (client === undefined) return
    this.#clients.push(client)
    this.#scheduler.schedule(client.owner, 0, 'begins', () => void client.run())
  }

  #startReaders(): void {
    this.#readers = [this.#newClient(), this.#newClient()].filter((reader) => reader !== undefined)
    for (const reader of this.#readers) this.#scheduler.schedule(reader.owner, 0, 'reads', () => void reader.read())
  }

  #newClient(): Client | undefined {
    const network = this.#network
    if (network === undefined) return undefined
    const owner = new Owner(`client ${++this.#clientsMade}`)
    return new Client(owner, {
      scheduler: this.#scheduler,
      faults: this.#faults,
      network,
      history: this.#history,
      ledger: this.#ledger,
      leases: this.#leases,
      violations: this.violations,
      isEnding: () => this.#isEnding,
      count: (program) => this.#counts.set(program, (this.#counts.get(program) ?? 0) + 1),
    })
  }

  // ---- Faults of whole processes, between any two events

  /** Drawn only where there are several. */
  get #anyServer(): Server {
    const [first] = this.#servers as readonly [Server]
    return this.#servers.length === 1 ? first : this.#faults.random.pick(this.#servers)
  }

  #strike(network: Network): void {
    const faults = this.#faults
    const server = this.#anyServer
    const living = this.#living()
    if (living.length > 0 && faults.strikes('coordinator_died')) this.#killClient(faults.random.pick(living))
    if (faults.strikes('clock_forward')) this.#setClock(server, faults.random.pick([10, 1000, 5000, 25_000]))
    if (faults.strikes('clock_back')) this.#setClock(server, -faults.random.pick([10, 1000, 5000, 25_000]))
    if (faults.strikes('server_paused')) server.pause(pauseMs(faults))
    if (server.running !== undefined && faults.strikes('clock_far_forward')) this.#setClockFar(server.running)
    if (this.#isFarStepUnsaved) return
    if (faults.strikes('server_stopped')) server.stop()
    if (server.running === undefined && !faults.random.chance(0.1)) return // Now and then while it starts or stops.
    if (faults.strikes('server_killed')) this.#kill(server, network, 'process')
    else if (faults.strikes('machine_crashed')) this.#kill(server, network, 'machine')
  }

  #living(): Client[] {
    return this.#clients.filter(({ owner }) => owner.isAlive)
  }

  #killClient(client: Client): void {
    client.owner.isAlive = false
    this.#scheduler.schedule(this.#nature, 100, 'a client is started', () => this.#startClient())
  }

  #kill(server: Server, network: Network, what: 'process' | 'machine'): void {
    if (server.isDead) return
    const isAnythingLost = server.kill(what)
    this.#checkDisk()
    if (!isAnythingLost) return
    // Without an fsync an answer is no promise, and who goes on from one may leave half a transaction behind. So such a
    // crash takes everybody, and what is on its way.
    for (const client of this.#living()) this.#killClient(client)
    network.replaceWire(new Owner('wire'))
    this.#history.forgetFloors()
  }

  /** Servers that share a store have clocks of their own. */
  #setClock(server: Server, byMs: number): void {
    const offset = this.#clockOffsetMs + server.clockOffsetMs + byMs
    if (Math.abs(offset) > CLOCK_OFFSET_MS_MAX) return
    if (this.#isShared) server.stepClock(byMs)
    else this.#clockOffsetMs = offset
  }

  #setClockFar({ owner, store }: RunningServer): void {
    if (this.#isFarStepUnsaved) return
    this.#isFarStepUnsaved = true
    this.#farOffsetMs += FAR_STEP_MS
    const save = (): void => {
      const saved = Promise.resolve(store.tso(1))
      saved.then(
        () => {
          this.#isFarStepUnsaved = false
        },
        () => this.#scheduler.schedule(owner, 500, 'saves the clock', save),
      )
    }
    this.#scheduler.schedule(owner, 0, 'sees the clock', save)
  }

  #checkDisk(): void {
    checkColumnFamilies(this.#disk.state, this.violations)
    checkChangeLog(this.#disk.state, this.violations)
    checkExpiryEntries(this.#disk.state, this.violations)
  }

  // ---- The end

  /** No more faults: everybody finishes, what is late arrives, and every lock is resolved. */
  async #end(): Promise<void> {
    this.#faults.heal()
    this.#isEnding = true
    const limit = this.#scheduler.steps + END_STEPS_MAX
    const until: Until = async (what, isReached) => {
      while (this.violations.all.length === 0 && !isReached()) {
        if (this.#scheduler.steps < limit && (await this.#scheduler.step())) continue
        this.violations.add('stuck', `${what} does not come to an end`)
      }
    }
    await until('a client', () => [...this.#living(), ...this.#readers].every(({ isDone }) => isDone))
    for (const { owner } of this.#living()) owner.isAlive = false
    // Heartbeats are gone with their clients; what is late arrives.
    const quietAt = this.#scheduler.nowMs + 60_000
    this.#scheduler.schedule(this.#nature, 60_000, 'all is quiet', () => {})
    await until('a call', () => this.#scheduler.nowMs >= quietAt && this.#servers.every(({ isBusy }) => !isBusy))
    const running = this.#anyServer.running
    if (running === undefined || this.violations.all.length > 0) return
    // Before anybody else resolves the locks that hold resolved_ts back.
    const follower = this.#faults.profile.feeds ? this.#newClient() : undefined
    for (const each of [...this.#readers, follower])
      if (each !== undefined) await this.#whole(until, each.owner, 'following all changes', () => each.followToEnd())
    await this.#whole(until, running.owner, 'resolving locks', () => resolveAll(running.store))
    const last = this.#newClient()
    if (last !== undefined)
      await this.#whole(until, last.owner, 'running all that is not covered', () => last.worker.finish())
    if (last !== undefined && this.#faults.profile.holdsLeases)
      await this.#whole(until, last.owner, 'taking every lease', () => last.leaseHolder.finish())
    const left = [...lockedKeys(this.#disk.state), ...lockedRows(this.#table.rows)]
    if (left.length > 0 || (running.store.locks?.count ?? 0) !== 0)
      this.violations.add('lock', `${running.store.locks?.count} locks stay in memory, on disk those of ${left}`)
    this.#checkDisk()
    if (this.#isShared)
      await this.#whole(until, running.owner, 'checking all rows', () => checkRows(this.#table.rows, this.violations))
    this.#ledger.checkAll()
    if (last !== undefined && this.#faults.profile.holdsLeases) checkNoneAttached(this.#disk.state, this.violations)
    if (this.#faults.profile.store === 'leveldb')
      checkCollected(this.#disk.state, this.#ledger, running.store.safePoint, this.violations)
    await this.#whole(until, running.owner, 'reading all', async () => {
      const { store } = running
      const now = await store.tso(1)
      for (const ts of this.#isShared ? this.#readable(store.safePoint, now) : [now])
        await this.#readAll(store, ts, now)
    })
  }

  /** Runs something of the server's to its end. */
  async #whole(until: Until, owner: Owner, what: string, body: () => Promise<void>): Promise<void> {
    let isDone = false
    this.#scheduler.schedule(owner, 0, what, () => {
      body().then(
        () => {
          isDone = true
        },
        (error: unknown) => this.violations.add('end', `${what}: ${error instanceof Error ? error.stack : error}`),
      )
    })
    await until(what, () => isDone)
  }

  /** Nothing is gone that anybody may read. */
  #readable(safePoint: Timestamp, now: Timestamp): Timestamp[] {
    const commits = this.#ledger.keys.flatMap((key) => this.#ledger.of(key).map(({ commitTs }) => commitTs))
    const readable = [...new Set(commits)].filter((ts) => ts > safePoint && ts < now).sort((a, b) => a - b)
    return [Math.max(1, safePoint), ...readable, now]
  }

  /** The server says what the ledger says. */
  async #readAll(store: Store, ts: Timestamp, newest: Timestamp): Promise<void> {
    const keys = this.#ledger.keys
    const { pairs } = await store.batchGet({ keys: keys.map((key) => Buffer.from(key)), ts })
    const found = new Map(pairs.map(({ key, value }) => [text(key), value && text(value)]))
    for (const key of keys) {
      if (key.startsWith(REMOVED) && ts < newest) continue // A delete_range takes them from earlier snapshots too.
      const expected = this.#ledger.valueAt(key, ts)
      if (found.get(key) !== expected)
        this.violations.add('end', `${key} is read as ${found.get(key)}; committed is ${expected}`)
    }
  }
}

/** How long a server stands still: mostly for much less than the longest time. */
function pauseMs({ random, profile: { pausesMs } }: Faults): number {
  return (pausesMs.length === 1 ? (pausesMs[0] as number) : random.pick(pausesMs)) * random.next() ** 3
}

type Until = (what: string, isReached: () => boolean) => Promise<void>

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

async function resolveAll(store: Store): Promise<void> {
  const resolver = new LockResolver(store)
  while (!store.upkeep.probe()) await new Promise((resolve) => setTimeout(resolve, 500)) // It opens the database again.
  for (let left = 10; left > 0; left--) {
    const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX, withReserved: true })
    if (locks.length === 0) return
    await resolver.resolve(locks, TIMESTAMP_MAX)
  }
}
