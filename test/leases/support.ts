import { expect } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { AttachedKeys } from '../../src/leases/attached-keys.js'
import { Leases } from '../../src/leases/leases.js'
import type { LeaseState } from '../../src/leases/rules/leases-api.js'
import { DEFAULT_LIMITS, type Limits } from '../../src/limits.js'
import type { Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { prewriteOf, put, START_MS, turn } from '../store/support.js'

/** A wall clock that can be set, and time that passes all the same. */
export class TwoClocks {
  #wallMs = START_MS
  #elapsedMs = 5000
  readonly now = (): number => this.#wallMs
  readonly monotonicNow = (): number => {
    this.readings++
    return this.#elapsedMs
  }
  /** How often anybody has asked for the time that passes. */
  readings = 0
  get elapsedMs(): number {
    return this.#elapsedMs
  }
  pass(ms: number): void {
    this.#wallMs += ms
    this.#elapsedMs += ms
  }
  step(ms: number): void {
    this.#wallMs = Math.max(1, this.#wallMs + ms)
  }
}

/** The leases of a store, over restarts. */
export class Leasing {
  readonly errors: unknown[] = []
  leases!: Leases

  constructor(
    readonly store: Store,
    readonly clocks: TwoClocks,
    readonly limits: Partial<Limits> = {},
  ) {}

  static async open(store: Store, clocks: TwoClocks, limits: Partial<Limits> = {}): Promise<Leasing> {
    const leasing = new Leasing(store, clocks, limits)
    await leasing.restart()
    return leasing
  }

  /** All that is in memory alone is forgotten. */
  async restart(): Promise<void> {
    await this.leases?.close()
    const limits = { ...DEFAULT_LIMITS, ...this.limits }
    const keys = new AttachedKeys(this.store, new Coordinator(this.store, commitOptionsOf(this.store.traits)), limits)
    this.leases = await Leases.open(this.store, { limits, keys, onError: (error) => this.errors.push(error) })
  }

  pass(ms: number): void {
    this.clocks.pass(ms)
    this.leases.look()
  }

  put(
    name: string,
    holder: string,
    rest: { ttlMs?: number; waitMs?: number; fence?: Timestamp; signal?: AbortSignal } = {},
  ) {
    return this.leases.put(name, { holder, ttlMs: 1000, ...rest })
  }

  async fence(name: string, holder: string): Promise<Timestamp> {
    return (await this.put(name, holder)).fence
  }

  /** Writes a key under the lease. */
  async commit(lease: string, fence: Timestamp, key = 'k'): Promise<Timestamp> {
    const request = { tryOnePc: true, linearizable: true, commitEffects: { leases: [{ lease, fence }] } }
    const { onePcCommitTs = 0 } = await this.store.prewrite(prewriteOf(await this.store.tso(1), [put(key)], request))
    expect(onePcCommitTs).toBeGreaterThan(0)
    return onePcCommitTs
  }

  /** Names of the records on disk. */
  async stored(): Promise<string[]> {
    return [...(await this.store.system.list('lease/')).keys()].map((name) => name.slice('lease/'.length))
  }

  async waiting(count: number): Promise<void> {
    while (this.leases.summary().waiting !== count) await turn()
  }
}

export const namesOf = (states: readonly LeaseState[]): string[] => states.map(({ name }) => name)
