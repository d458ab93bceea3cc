import { keyText } from '../../src/bytes/key-text.js'
import type { RegistryName, RegistryRows, Swapped } from '../../src/cluster/registry-rows.js'
import { TableRegistry, type TableRegistryOptions } from '../../src/cluster/table-registry.js'
import { KvError } from '../../src/errors/kv-error.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { type Faults, NO_FAULTS, SimulatedProcess, World } from '../oracle/simulated-servers.js'

/** Rows that several simulated processes share. */
export class SimulatedRows {
  readonly rows = new Map<RegistryName, Uint8Array>()
  faults: Faults = { ...NO_FAULTS }
  readonly #world: World

  constructor(world: World) {
    this.#world = world
  }

  #delayMs(): number {
    return this.#world.happens(this.faults.slow) ? this.#world.between(10, 1500) : this.#world.between(0.5, 4)
  }

  seenBy(process: SimulatedProcess): RegistryRows {
    return {
      list: () => this.#read(process, () => new Map(this.rows)),
      read: (name) => this.#read(process, () => this.rows.get(name)),
      swap: (name, expected, next) =>
        new Promise((resolve) => {
          const world = this.#world
          const answer = (outcome: Swapped): void =>
            world.after(this.#delayMs(), () => process.reach(() => resolve(outcome)))
          world.after(this.#delayMs(), () => {
            if (this.faults.isTableAway || world.happens(this.faults.fails)) return answer('unknown')
            if (world.happens(this.faults.landsLate)) {
              world.after(world.between(1, 4000), () => void this.#swap(name, expected, next))
              return answer('unknown')
            }
            const outcome = this.#swap(name, expected, next)
            if (!world.happens(this.faults.loses)) answer(world.happens(this.faults.fails) ? 'unknown' : outcome)
          })
        }),
    }
  }

  #read<T>(process: SimulatedProcess, look: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const world = this.#world
      const fail = (): void => process.reach(() => reject(new KvError('storage_unavailable', 'away', {})))
      world.after(this.#delayMs(), () => {
        if (this.faults.isTableAway || world.happens(this.faults.fails)) return world.after(this.#delayMs(), fail)
        const found = look()
        if (!world.happens(this.faults.loses)) world.after(this.#delayMs(), () => process.reach(() => resolve(found)))
      })
    })
  }

  #swap(name: RegistryName, expected: Uint8Array | undefined, next: Uint8Array | undefined): Swapped {
    const found = this.rows.get(name)
    const isExpected =
      found === undefined || expected === undefined ? found === expected : keyText(found) === keyText(expected)
    if (!isExpected) return 'refused'
    if (next === undefined) this.rows.delete(name)
    else this.rows.set(name, next)
    return 'done'
  }
}

export class SimulatedServer {
  readonly process: SimulatedProcess
  readonly registry: TableRegistry
  readonly holds = new Set<{ readonly ts: Timestamp }>()

  /** Each has a monotonic clock of its own, and it may run a little fast or slow. */
  constructor(world: World, rows: SimulatedRows, id: string, options: Partial<TableRegistryOptions> = {}) {
    const process = new SimulatedProcess(world)
    const [beganMs, pace] = [world.between(0, 1e9), world.between(0.99, 1.01)]
    this.process = process
    this.registry = new TableRegistry({
      rows: rows.seenBy(process),
      id,
      url: `http://${id}:7400`,
      format: 1,
      elapsedMs: () => beganMs + pace * world.nowMs,
      timer: (ms, call) => process.after(ms / pace, call),
      ...options,
    })
  }

  oldest = (): Timestamp => {
    let oldest = TIMESTAMP_MAX
    for (const { ts } of this.holds) oldest = Math.min(oldest, ts)
    return oldest
  }
}

export interface Simulation {
  readonly world: World
  readonly rows: SimulatedRows
  readonly servers: readonly SimulatedServer[]
  pass(ms: number): Promise<void>
  /** Time passes until the promise is settled. */
  over<T>(promise: Promise<T>): Promise<T>
}

/** Servers that have joined. */
export async function simulate(seed: number, count: number): Promise<Simulation> {
  const world = new World(seed)
  const rows = new SimulatedRows(world)
  const servers = Array.from({ length: count }, (_, i) => new SimulatedServer(world, rows, `server-${i}`))
  const pass = (ms: number): Promise<void> => world.runUntil(world.nowMs + ms)
  const over = async <T>(promise: Promise<T>): Promise<T> => {
    let isOver = false
    const end = (): void => {
      isOver = true
    }
    promise.then(end, end)
    for (let steps = 0; !isOver; steps++) {
      if (steps > 10_000) throw new Error('it never ends')
      await pass(5)
    }
    return promise
  }
  await over(Promise.all(servers.map(({ registry, oldest }) => registry.join(oldest))))
  return { world, rows, servers, pass, over }
}
