import type { SystemName } from '../../system-records.js'
import { type Engine, readPage } from '../engine/engine.js'
import type { LookUps } from '../engine/look-ups.js'
import { nameOfSystem, systemKey } from '../records/keyspace.js'
import { KEYS_AT_A_TIME } from './batch-sizes.js'
import { guard } from './guard.js'
import type { Health } from './health.js'

/**
 * Reads of CF_SYSTEM, without latches. While the outcome of a failed write is unknown they throw KvError `storage_unavailable`,
 * because no decision may depend on them then.
 */
export class SystemReads {
  readonly #engine: Engine
  readonly #lookUps: LookUps
  readonly #health: Health

  constructor(engine: Engine, lookUps: LookUps, health: Health) {
    this.#engine = engine
    this.#lookUps = lookUps
    this.#health = health
  }

  /** False while the outcome of a failed write is unknown: memory may be behind the disk. */
  get isOutcomeKnown(): boolean {
    return this.#health.isWritable
  }

  /** Reads in this turn of the event loop. @returns null when the caller must use `many` instead. */
  getSync(name: SystemName): Uint8Array | undefined | null {
    if (!this.#lookUps.areQuick || !this.#health.isWritable) return null
    return this.#lookUps.getSync(systemKey(name))
  }

  many(names: readonly SystemName[]): Promise<(Uint8Array | undefined)[]> {
    return guard(async () => {
      this.#health.requireWritable()
      const values: (Uint8Array | undefined)[] = []
      for (let from = 0; from < names.length; from += KEYS_AT_A_TIME)
        for (const value of await this.#engine.getMany(names.slice(from, from + KEYS_AT_A_TIME).map(systemKey)))
          values.push(value)
      return values
    })
  }

  /** Records in `[from, to)`, ascending. Fewer than `limit` only at the end. */
  page(from: SystemName, to: SystemName, limit: number): Promise<[SystemName, Uint8Array][]> {
    return guard(async () => {
      this.#health.requireAvailable()
      const page = await readPage(this.#engine, { gte: systemKey(from), lt: systemKey(to) }, limit)
      return page.map(([stored, value]) => [nameOfSystem(stored), value])
    })
  }
}
