import { Changes } from '../../src/changes/changes.js'
import { Consumers } from '../../src/changes/consumers.js'
import { SingleServer } from '../../src/cluster/single-server.js'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import type { LockResolver } from '../../src/coordinator/lock-resolver.js'
import { KvError } from '../../src/errors/kv-error.js'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { ExpiredLocks } from '../../src/gc/expired-locks.js'
import { GcWorker } from '../../src/gc/gc-worker.js'
import { Pins } from '../../src/gc/pins.js'
import { AttachedKeys } from '../../src/leases/attached-keys.js'
import { Leases } from '../../src/leases/leases.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { Observers } from '../../src/observers/observers.js'
import { openLevelDbStore } from '../../src/store/leveldb/leveldb-store.js'
import type { CompleteStore } from '../../src/store/store.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../src/timestamp.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { OneShots } from '../../src/txn/one-shots.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { prewriteWithEffects } from '../../src/txn/prewrite-with-effects.js'
import type { Disk } from './disk.js'
import type { Faults } from './faults.js'
import type { LeaseBooks } from './lease-ledger.js'
import type { Ledger } from './ledger.js'
import type { RunningServer } from './running-server.js'
import { Owner, type Scheduler } from './scheduler.js'
import { isAway, type SharedServers } from './shared-servers.js'
import { SimulatedEngine } from './simulated-engine.js'
import type { Violations } from './violations.js'

/** A call that the server has not answered. */
interface InFlight {
  readonly cutOff: () => void
}

export interface ServerWorld {
  readonly scheduler: Scheduler
  readonly faults: Faults
  readonly disk: Disk
  /** Absent where one server has the store to itself. */
  readonly shared: SharedServers | undefined
  readonly ledger: Ledger
  readonly leases: LeaseBooks
  readonly violations: Violations
  readonly wallMs: () => number
  /** The world's own: what no crash takes. */
  readonly nature: Owner
}

/** A server: started, stopped, killed, and started again over what its disk or table kept. */
export class Server {
  readonly #name: string
  readonly #world: ServerWorld
  readonly #inFlight = new Set<InFlight>()
  #owner: Owner
  #running: RunningServer | undefined
  #isStopping = false
  starts = 0

  constructor(world: ServerWorld, name: string) {
    this.#world = world
    this.#name = name
    this.#owner = world.nature
    this.start()
  }

  /** undefined: it refuses connections. */
  get running(): RunningServer | undefined {
    return this.#isStopping ? undefined : this.#running
  }
  get isDead(): boolean {
    return !this.#owner.isAlive
  }
  get isBusy(): boolean {
    return this.#inFlight.size > 0 || this.running === undefined
  }

  start(): void {
    const { scheduler, faults } = this.#world
    const owner = new Owner(`${this.#name} ${++this.starts}`)
    owner.clockOffsetMs = this.#owner.clockOffsetMs
    this.#owner = owner
    this.#isStopping = false
    scheduler.schedule(owner, 300 * faults.random.next() ** 4, 'starts', () => void this.#open(owner))
  }

  async #open(owner: Owner): Promise<void> {
    const { shared, violations } = this.#world
    try {
      this.#running = await (shared?.open(owner, `http://${this.#name}`) ?? this.#openAlone(owner))
    } catch (error) {
      if (!isDiskFailure(error) && !isAway(error)) violations.add('start', `the server did not start: ${String(error)}`)
      this.kill('process')
    }
  }

  async #openAlone(owner: Owner): Promise<RunningServer> {
    const store = await this.#openStore()
    const coordinator: Coordinator = new Coordinator(store, commitOptionsOf(store.traits), undefined, (...asked) =>
      keys.attach(...asked),
    )
    const keys = new AttachedKeys(store, coordinator, DEFAULT_LIMITS)
    const observers = await this.#openObservers(store, () => coordinator)
    const pins = await Pins.open(store)
    const leases = await this.#openLeases(store, keys)
    const changes = this.#changesOf(store, coordinator.resolver)
    const expiredLocks = this.#expiredLocksOf(store, coordinator.resolver)
    const gc = new GcWorker(
      {
        store,
        pins,
        registry: new SingleServer(),
        openTransactions: () => [],
        holders: () => changes.holders(),
        beforehand: (safePoint) => observers.passTo(safePoint),
        afterwards: (safePoint, pace) => observers.collect(safePoint, pace),
        onError: () => {},
      },
      { lifeTimeMs: 0, intervalMs: 0 }, // It collects when a client asks.
    )
    return {
      ...{ owner, store, pins, observers, changes, leases },
      resolver: coordinator.resolver,
      oneShots: new OneShots(store, coordinator, new Outcomes(store, coordinator, DEFAULT_LIMITS)),
      prewrite: (request) => prewriteWithEffects(coordinator, request),
      collect: async (isByHand, behindMs) => {
        if (!isByHand) return gc.run(gc.wanted(behindMs))
        const wanted = Math.max(1, store.time.clock() - behindMs * LOGICAL_PER_MS)
        const beforehand = (ts: Timestamp): Promise<void> => observers.passTo(ts)
        return collectGarbage(store, wanted, { beforehand, afterwards: (safePoint) => observers.collect(safePoint) })
      },
      close: async () => {
        await Promise.all([...[observers, gc, expiredLocks].map((each) => each.close()), leases?.close()])
        await store.close()
      },
    }
  }

  /** Stands still, as a process that gets no time. */
  pause(ms: number): void {
    this.#owner.pausedUntilMs = this.#world.scheduler.nowMs + ms
  }

  stepClock(byMs: number): void {
    this.#owner.clockOffsetMs += byMs
  }
  get clockOffsetMs(): number {
    return this.#owner.clockOffsetMs
  }

  #openObservers(store: CompleteStore, context: () => Coordinator): Promise<Observers> {
    const { faults, violations } = this.#world
    const { claimsMax, readyMax } = faults.profile.observers
    const onError = (error: unknown): void => {
      if (!isEngineError(error)) violations.add('defect', `background work of observers failed with ${String(error)}`)
    }
    const sizes = { fifo: readyMax, fifoBytes: 1000, found: readyMax }
    return Observers.open(store, { limits: { observersMax: 8, claimsMax }, sizes, onError, context })
  }

  async #openLeases(store: CompleteStore, keys: AttachedKeys): Promise<Leases | undefined> {
    const { faults, violations, leases, scheduler } = this.#world
    if (!faults.profile.holdsLeases) return undefined
    const onError = (error: unknown): void => {
      if (!isEngineError(error)) violations.add('defect', `background work of leases failed with ${String(error)}`)
    }
    const opened = await Leases.open(store, { limits: { leasesMax: 8 }, keys, onError })
    leases.restarted(await opened.list(), scheduler.nowMs)
    return opened
  }

  #expiredLocksOf(store: CompleteStore, resolver: LockResolver): ExpiredLocks {
    const { violations } = this.#world
    const onError = (error: unknown): void => {
      if (!isEngineError(error)) violations.add('defect', `dead locks are not ended: ${String(error)}`)
    }
    return new ExpiredLocks({ store, locks: store.locks, resolver, onError })
  }

  #changesOf(store: CompleteStore, resolver: LockResolver): Changes {
    const { faults, violations } = this.#world
    const limits = { ...DEFAULT_LIMITS, ...faults.profile.feed }
    const onError = (error: unknown): void => {
      if (!isEngineError(error) && !(error instanceof KvError && error.code === 'storage_unavailable'))
        violations.add('defect', `background work of the feed failed with ${String(error)}`)
    }
    // No consumer is registered.
    const consumers = new Consumers(store, { limits, onError })
    return new Changes(store, { limits, consumers, resolver, onError })
  }

  #openStore(): Promise<CompleteStore> {
    const { scheduler, faults, disk, wallMs } = this.#world
    const { durability, cacheBytesMax, lookUpSlowMs } = faults.profile
    const clock = { now: wallMs, monotonicNow: () => scheduler.nowMs }
    disk.recover()
    const openEngine = async () => new SimulatedEngine(disk, scheduler, faults)
    return openLevelDbStore({ ...clock, directory: 'simulated', durability, cacheBytesMax, openEngine, lookUpSlowMs })
  }

  /** Runs the server's side of a call, in an event of the caller's. @param cutOff when the server dies first. */
  async handle<A>(
    running: RunningServer,
    run: (server: RunningServer) => Promise<A> | A,
    cutOff: () => void,
  ): Promise<A> {
    const call = { cutOff }
    this.#inFlight.add(call)
    this.#world.scheduler.become(running.owner)
    try {
      return await run(running)
    } catch (error) {
      this.#requireAnswer(error)
      throw error
    } finally {
      this.#inFlight.delete(call)
    }
  }

  /** What a client is told must be an answer, and no defect. */
  #requireAnswer(error: unknown): void {
    if (error instanceof KvError && !error.message.startsWith('the database is damaged')) return
    const text = error instanceof Error ? (error.stack ?? String(error)) : String(error)
    this.#world.violations.add('defect', `a call failed with ${text}`)
  }

  /** The process dies, or the whole machine. @returns whether anything that readers had seen is lost. */
  kill(what: 'process' | 'machine'): boolean {
    const { scheduler, faults, disk, nature, ledger } = this.#world
    this.#owner.isAlive = false
    this.#running = undefined
    for (const { cutOff } of [...this.#inFlight]) cutOff()
    this.#inFlight.clear()
    let isAnythingLost = false
    if (what === 'machine') {
      const lost = disk.crash((unsynced) => faults.random.below(unsynced + 1))
      isAnythingLost = lost > 0 && faults.profile.durability === 'async'
      if (isAnythingLost) {
        ledger.timeline++
        ledger.changes.forget()
      }
    }
    scheduler.schedule(nature, 1000 * faults.random.next() ** 4, 'server is started again', () => this.start())
    return isAnythingLost
  }

  /** As on SIGTERM: takes no more calls, finishes those that it has, closes the database. */
  stop(): void {
    const running = this.running
    if (running === undefined) return
    const { scheduler } = this.#world
    this.#isStopping = true
    running.changes.close()
    void running.leases?.close()
    const graceEndsAt = scheduler.nowMs + 8000
    const closeWhenIdle = (): void => {
      if (this.#inFlight.size > 0 && scheduler.nowMs < graceEndsAt)
        return void scheduler.schedule(running.owner, 50, 'waits for calls', closeWhenIdle)
      void running.close().then(() => {
        if (running.owner.isAlive) this.kill('process')
      })
    }
    scheduler.schedule(running.owner, 0, 'stops', closeWhenIdle)
  }
}

function isEngineError(error: unknown): boolean {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  return cause instanceof Error && 'code' in cause && String(cause.code).startsWith('LEVEL_')
}

/** A write in the background of the start may fail too, which what comes after it is told by a refusal. */
function isDiskFailure(error: unknown): boolean {
  return isEngineError(error) || (error instanceof KvError && error.message.startsWith('the storage engine failed'))
}
