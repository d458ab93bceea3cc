import { MinHeap, type Ranked } from '../../src/bytes/min-heap.js'
import { Clock } from '../../src/oracle/clock.js'
import type { OtherServer } from '../../src/oracle/lead.js'
import { LeaderOracle } from '../../src/oracle/leader-oracle.js'
import type { OracleRow, SwapOutcome } from '../../src/oracle/oracle-row.js'
import { AskFailed } from '../../src/oracle/signed-ask.js'
import type { OracleForward, TimestampAnswer } from '../../src/oracle/timestamp-ask.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../../src/timestamp.js'
import type { Answered, Told } from './timestamp-history.js'

export const START_MS = 1_700_000_000_000

/** Numbers from 0 to 1 that a seed determines. */
function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

interface Event extends Ranked {
  readonly atMs: number
  readonly run: () => void
}

/** Time that passes when something happens, and the order of all that happens. */
export class World {
  nowMs = 0
  readonly random: () => number
  #order = 0
  readonly #events = new MinHeap<Event>()

  constructor(seed: number) {
    this.random = seeded(seed)
  }

  moment(): number {
    return ++this.#order
  }

  between(min: number, max: number): number {
    return min + this.random() * (max - min)
  }

  happens(probability: number): boolean {
    return this.random() < probability
  }

  oneOf<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)] as T
  }

  after(ms: number, run: () => void): void {
    const atMs = this.nowMs + ms
    this.#events.set({ atMs, run, rank: 0, place: -1 }, atMs + this.moment() * 1e-9) // In order, where times are equal.
  }

  async runUntil(ms: number): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve)) // What was called just now begins.
    for (let event = this.#events.first; event !== undefined && event.rank <= ms; event = this.#events.first) {
      this.#events.delete(event)
      this.nowMs = Math.max(this.nowMs, event.atMs)
      event.run()
      await new Promise((resolve) => setImmediate(resolve))
    }
    this.nowMs = ms
  }
}

/** A process, which can be stopped for a while or for good. All that reaches it comes through `reach`. */
export class SimulatedProcess {
  isAlive = true
  #isPaused = false
  #missed: (() => void)[] = []
  readonly #world: World

  constructor(world: World) {
    this.#world = world
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  reach(run: () => void): void {
    if (!this.isAlive) return
    if (this.#isPaused) this.#missed.push(run)
    else run()
  }

  after(ms: number, run: () => void): () => void {
    let isWanted = true
    this.#world.after(ms, () =>
      this.reach(() => {
        if (isWanted) run()
      }),
    )
    return () => {
      isWanted = false
    }
  }

  pause(ms: number): void {
    if (this.#isPaused) return
    this.#isPaused = true
    this.#world.after(ms, () => {
      this.#isPaused = false
      const missed = this.#missed
      this.#missed = []
      // A process that goes on finds its timers and sockets in any order.
      for (const run of missed) this.#world.after(this.#world.between(0, 0.1), () => this.reach(run))
    })
  }
}

/** How often calls go wrong, 0 to 1. */
export interface Faults {
  isTableAway: boolean
  fails: number
  /** Of changes: those whose answer comes before they land, if they do. */
  landsLate: number
  loses: number
  slow: number
}

export const NO_FAULTS: Readonly<Faults> = { isTableAway: false, fails: 0, landsLate: 0, loses: 0, slow: 0 }

export class SimulatedTable {
  bytes: Uint8Array | undefined
  faults: Faults = { ...NO_FAULTS }
  readonly #world: World

  constructor(world: World) {
    this.#world = world
  }

  delayMs(): number {
    return this.networkMs()
  }

  /** Between servers. */
  networkMs(): number {
    return this.#world.happens(this.faults.slow) ? this.#world.between(10, 1500) : this.#world.between(0.5, 4)
  }

  seenBy(process: SimulatedProcess): OracleRow {
    const world = this.#world
    return {
      read: () =>
        new Promise((resolve, reject) => {
          const fail = (): void => process.reach(() => reject(new Error('the table is away')))
          world.after(this.delayMs(), () => {
            if (this.faults.isTableAway || world.happens(this.faults.fails)) return world.after(this.delayMs(), fail)
            const { bytes } = this
            if (!world.happens(this.faults.loses))
              world.after(this.delayMs(), () => process.reach(() => resolve(bytes)))
          })
        }),
      swap: (expected, next) =>
        new Promise((resolve, reject) => {
          const answer = (outcome: SwapOutcome): void =>
            world.after(this.delayMs(), () => process.reach(() => resolve(outcome)))
          world.after(this.delayMs(), () => {
            if (this.faults.isTableAway)
              return world.after(this.delayMs(), () => process.reach(() => reject(new Error('the table is away'))))
            if (world.happens(this.faults.fails)) return answer('unknown')
            if (world.happens(this.faults.landsLate)) {
              world.after(world.between(1, 4000), () => void this.#swap(expected, next))
              return answer('unknown')
            }
            const outcome = this.#swap(expected, next)
            if (!world.happens(this.faults.loses)) answer(world.happens(this.faults.fails) ? 'unknown' : outcome)
          })
        }),
    }
  }

  #swap(expected: Uint8Array | undefined, next: Uint8Array): SwapOutcome {
    const isExpected =
      expected === undefined || this.bytes === undefined
        ? expected === this.bytes
        : Buffer.compare(expected, this.bytes) === 0
    if (isExpected) this.bytes = next
    return isExpected ? 'done' : 'refused'
  }
}

/** What the simulation needs of an oracle, so that wrong ones can stand in. */
export type SimulatedOracle = Pick<
  LeaderOracle,
  'next' | 'observe' | 'last' | 'now' | 'answer' | 'close' | 'role' | 'unreachedEpoch' | 'knowsTime'
>

export interface OracleParts {
  readonly world: World
  readonly process: SimulatedProcess
  readonly row: OracleRow
  readonly forward: OracleForward
  readonly url: string
  readonly id: string
  readonly clock: Clock
  readonly others: () => readonly OtherServer[]
  readonly isReached: (silent: string | undefined) => Promise<boolean | undefined>
  readonly onWarning: (message: string) => void
}

export function leaderOracle({ world, process, ...options }: OracleParts): LeaderOracle {
  const oracle = new LeaderOracle({
    ...options,
    timer: (ms, call) => process.after(ms, call),
    random: world.random,
  })
  oracle.start()
  return oracle
}

interface Running {
  readonly process: SimulatedProcess
  readonly oracle: SimulatedOracle
  readonly clock: Clock
}

export interface Server {
  readonly url: string
  /** By which its wall clock is wrong. */
  offsetMs: number
  /** Nobody reaches it, but it reaches the others and the table: its URL is wrong. */
  isUnreachable: boolean
  run: Running
}

/** How far the servers' ideas of the time that they share are apart at most, where calls take long. */
const TIME_OFF_MS_MAX = 3000

/** Requests that have not ended, by the process that they are at. */
interface Open {
  readonly process: SimulatedProcess
  readonly atMs: number
}

export class Servers {
  readonly world: World
  readonly table: SimulatedTable
  readonly all: Server[] = []
  readonly history: Answered[] = []
  /** Timestamps as milliseconds, and when they were answered. */
  readonly times: Told[] = []
  readonly open = new Set<Open>()
  /** Timestamps further ahead of every clock than bursts and takeovers explain. */
  readonly tooFarAhead: string[] = []
  readonly warnings: string[] = []
  refused = 0
  latestOffsetMs = 0
  #runs = 0
  readonly #make: (parts: OracleParts) => SimulatedOracle

  constructor(seed: number, make: (parts: OracleParts) => SimulatedOracle = leaderOracle, count = 3) {
    this.world = new World(seed)
    this.table = new SimulatedTable(this.world)
    this.#make = make
    for (let i = 0; i < count; i++) this.add(`http://server-${i}`, Math.round(this.world.between(-200, 200)))
  }

  add(url: string, offsetMs = 0): Server {
    const server = { url, offsetMs, isUnreachable: false } as Server
    this.stepClock(server, offsetMs)
    this.all.push(server)
    this.start(server)
    return server
  }

  start(server: Server): void {
    const process = new SimulatedProcess(this.world)
    const clock = new Clock({
      now: () => Math.floor(START_MS + this.world.nowMs + server.offsetMs),
      monotonicNow: () => this.world.nowMs,
    })
    const parts: OracleParts = {
      world: this.world,
      process,
      row: this.table.seenBy(process),
      forward: (url, ask, signal) => this.#forward(process, url, (oracle) => oracle.answer(ask), signal),
      url: server.url,
      id: `run ${++this.#runs}`,
      clock,
      others: () => this.#othersOf(process),
      isReached: (silent) => this.#isReached(server, process, silent),
      onWarning: (message) => this.warnings.push(message),
    }
    server.run = { process, clock, oracle: this.#make(parts) }
  }

  /** Servers that stand still, or whose answers are lost, do not tell. */
  #isReached(server: Server, process: SimulatedProcess, silent: string | undefined): Promise<boolean | undefined> {
    const { world, table } = this
    const asked = this.all.filter(({ url, run }) => run.process !== process && run.process.isAlive && url !== silent)
    if (asked.length === 0) return Promise.resolve(undefined)
    return new Promise((resolve) => {
      const isLost = world.happens(table.faults.loses)
      world.after(isLost ? 2000 : 4 * table.networkMs(), () => {
        const isTold = !isLost && asked.some(({ run }) => run.process.isAlive && !run.process.isPaused)
        process.reach(() => resolve(isTold ? !server.isUnreachable : undefined))
      })
    })
  }

  /** What the registry shows: the others that are alive, and what they have said. */
  #othersOf(process: SimulatedProcess): OtherServer[] {
    const living = this.all.filter(({ run }) => run !== undefined && run.process !== process && run.process.isAlive)
    return living.map(({ run }) => ({
      isAlive: true,
      knowsTime: run.oracle.knowsTime,
      unreachedEpoch: run.oracle.unreachedEpoch,
    }))
  }

  #forward(
    from: SimulatedProcess,
    url: string,
    call: (oracle: SimulatedOracle) => Promise<TimestampAnswer | 'not_leader'>,
    signal: AbortSignal,
  ): Promise<TimestampAnswer | 'not_leader'> {
    const { world, table } = this
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason), { once: true })
      const fail = (why: string, isReached: boolean): void =>
        world.after(table.networkMs(), () => from.reach(() => reject(new AskFailed(why, isReached, undefined))))
      const arrive = (): void => {
        const server = this.all.find((server) => server.url === url)
        const isThere = server?.run.process.isAlive && !server.isUnreachable
        if (!isThere) fail('no connection', false)
        else
          server.run.process.reach(() => {
            call(server.run.oracle).then(
              (answer) => {
                if (!world.happens(table.faults.loses))
                  world.after(table.networkMs(), () => from.reach(() => resolve(answer)))
              },
              (error: Error) => fail(error.message, true),
            )
          })
      }
      if (world.happens(table.faults.loses)) return
      world.after(table.networkMs(), arrive)
      if (world.happens(table.faults.fails)) world.after(table.networkMs(), arrive)
    })
  }

  kill(server: Server): void {
    server.run.process.isAlive = false
  }

  stepClock(server: Server, offsetMs: number): void {
    server.offsetMs = offsetMs
    this.latestOffsetMs = Math.max(this.latestOffsetMs, offsetMs)
  }

  /** @param onEnd called at once when the request has ended. */
  next(server: Server, count: number, onEnd: () => void = () => {}): void {
    this.#call(server, onEnd, async ({ oracle }, began) => {
      const last = await oracle.next(count)
      this.history.push({ server: server.url, began, ended: this.world.moment(), count, last })
      this.times.push({ atMs: this.world.nowMs, ms: physicalMs(last) })
      const aheadMs = physicalMs(last) - START_MS - this.world.nowMs - this.latestOffsetMs
      const allowedMs = 3300 + 260 * (oracle.role.epoch + 1)
      if (aheadMs > allowedMs) this.tooFarAhead.push(`${last} is ${aheadMs} ms ahead of all clocks`)
    })
  }

  observe(server: Server, ts: Timestamp, onEnd: () => void = () => {}): void {
    const times = this.all.filter(({ run }) => run.process.isAlive).map(({ run }) => run.oracle.now())
    const isPast = ts < Math.min(...times) - timestampFromMs(TIME_OFF_MS_MAX)
    this.#call(server, onEnd, async ({ oracle }, began) => {
      await oracle.observe(ts)
      const last = isPast ? Math.max(ts, oracle.last) : oracle.last
      this.history.push({ server: server.url, began, ended: this.world.moment(), count: 0, last })
    })
  }

  #call(server: Server, onEnd: () => void, call: (run: Running, began: number) => Promise<void>): void {
    const { run } = server
    const open: Open = { process: run.process, atMs: this.world.nowMs }
    this.open.add(open)
    const began = this.world.moment()
    run.process.reach(() => {
      void call(run, began)
        .catch(() => this.refused++)
        .then(() => {
          this.open.delete(open)
          onEnd()
        })
    })
  }

  /** Those at processes that are alive. */
  get openCount(): number {
    return [...this.open].filter(({ process }) => process.isAlive).length
  }
}

/** Requests and accidents, then a time in which all is well. */
export async function runSchedule(servers: Servers, ms: number, clockStepMs = 3000): Promise<void> {
  const { world, table, all } = servers
  let isOver = false
  const request = (depth: number): void => {
    if (isOver) return
    const server = world.oneOf(all)
    const onEnd = (): void => {
      if (depth < 3 && world.happens(0.5)) request(depth + 1)
    }
    if (world.happens(0.8)) servers.next(server, world.happens(0.1) ? 5000 : 1 + Math.floor(world.random() * 5), onEnd)
    else {
      const newest = servers.history.at(-1)?.last ?? 1
      const futures = [
        newest,
        newest + 1,
        newest + 50,
        timestampFromMs(START_MS + world.nowMs + world.between(-50, 1e7)),
      ]
      servers.observe(server, Math.floor(world.oneOf(futures)), onEnd)
    }
  }
  const requests = (): void => {
    request(0)
    if (!isOver) world.after(world.between(5, 90), requests)
  }
  const accident = (): void => {
    if (isOver) return
    const server = world.oneOf(all)
    const leading = all.find(({ run }) => run.process.isAlive && run.oracle.role.role === 'leader')
    const victim = leading !== undefined && world.happens(0.6) ? leading : server
    const { run } = victim
    const restart = (): void => {
      if (!run.process.isAlive && victim.run === run) servers.start(victim)
    }
    const kinds = [
      'pause',
      'pause',
      'pause',
      'kill',
      'close',
      'clock',
      'faults',
      'away',
      'unreachable',
      'none',
    ] as const
    const kind = world.oneOf(kinds)
    if (kind === 'pause') run.process.pause(world.between(50, 5000))
    else if (kind === 'kill' && run.process.isAlive) {
      servers.kill(victim)
      world.after(world.between(0, 3000), restart)
    } else if (kind === 'close' && run.process.isAlive) {
      run.process.reach(() => {
        void run.oracle.close().then(() => {
          servers.kill(victim)
          world.after(world.between(0, 1000), restart)
        })
      })
    } else if (kind === 'clock')
      servers.stepClock(victim, victim.offsetMs + Math.round(world.between(-clockStepMs, clockStepMs)))
    else if (kind === 'away') {
      table.faults = { ...table.faults, isTableAway: true }
      world.after(world.between(100, 3000), () => {
        table.faults = { ...table.faults, isTableAway: false }
      })
    } else if (kind === 'unreachable') {
      victim.isUnreachable = true
      world.after(world.between(100, 6000), () => {
        victim.isUnreachable = false
      })
    } else if (kind === 'faults')
      table.faults = {
        isTableAway: false,
        fails: world.oneOf([0, 0.05, 0.3]),
        landsLate: world.oneOf([0, 0.1, 0.5]),
        loses: world.oneOf([0, 0.02, 0.1]),
        slow: world.oneOf([0, 0.05, 0.3]),
      }
    world.after(world.between(100, 1200), accident)
  }
  requests()
  world.after(world.between(0, 1500), accident)
  await world.runUntil(ms)
  isOver = true
  table.faults = { ...NO_FAULTS }
  for (const server of all) server.isUnreachable = false
  // Whoever is behind could not take over from whoever was ahead.
  for (const server of all) servers.stepClock(server, servers.latestOffsetMs)
  await world.runUntil(world.nowMs + 5500) // Pauses end, killed servers have started.
  for (const server of all) if (!server.run.process.isAlive) servers.start(server)
  await world.runUntil(world.nowMs + 11_000)
}

/** One clock is wrong by `offsetMs` from the start. Leaders are killed, unless nobody else knows the time, and start again. */
export async function runWrongClock(servers: Servers, offsetMs: number, ms: number): Promise<void> {
  const { world, all } = servers
  const wrong = world.oneOf(all)
  servers.stepClock(wrong, offsetMs)
  const request = (): void => {
    for (const server of all) servers.next(server, 1)
    world.after(world.between(100, 300), request)
  }
  const kill = (): void => {
    const victim = all.find(({ run }) => run.process.isAlive && run.oracle.role.role === 'leader')
    const knowing = all.filter(({ run }) => run.process.isAlive && run.oracle.knowsTime)
    if (victim !== undefined && knowing.length > 1) {
      servers.kill(victim)
      world.after(world.oneOf([10, 500, 3000, 9000]), () => servers.start(victim))
    }
    world.after(world.between(3000, 12_000), kill)
  }
  request()
  world.after(world.between(0, 5000), kill)
  await world.runUntil(ms)
}
