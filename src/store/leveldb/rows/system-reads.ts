import type { RecordReads } from '../../calls/row-access.js'
import type { SystemName } from '../../system-records.js'
import { readPage } from '../engine/engine.js'
import { nameOfSystem, systemKey } from '../records/keyspace.js'
import { KEYS_AT_A_TIME } from './batch-sizes.js'
import { guard } from './guard.js'
import type { RowStore } from './row-store.js'

/** Reads of CF_SYSTEM. While the outcome of a failed write is unknown, nothing may be decided by them. */
export class SystemReads implements RecordReads {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  get isSettled(): boolean {
    return this.#rows.health.isWritable
  }

  now(name: SystemName): Uint8Array | undefined | null {
    const { lookUps, health } = this.#rows
    if (!lookUps.areQuick || !health.isWritable) return null
    return lookUps.getNow(systemKey(name))
  }

  many(names: readonly SystemName[]): Promise<(Uint8Array | undefined)[]> {
    return guard(async () => {
      this.#rows.health.requireWritable()
      const values: (Uint8Array | undefined)[] = []
      for (let from = 0; from < names.length; from += KEYS_AT_A_TIME)
        for (const value of await this.#rows.engine.getMany(names.slice(from, from + KEYS_AT_A_TIME).map(systemKey)))
          values.push(value)
      return values
    })
  }

  page(from: SystemName, to: SystemName, limit: number): Promise<[SystemName, Uint8Array][]> {
    return guard(async () => {
      this.#rows.health.requireAvailable()
      const page = await readPage(this.#rows.engine, { gte: systemKey(from), lt: systemKey(to) }, limit)
      return page.map(([stored, value]) => [nameOfSystem(stored), value])
    })
  }
}
