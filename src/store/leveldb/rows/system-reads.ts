import type { RecordReads } from '../../calls/row-access.js'
import type { SystemName } from '../../system-records.js'
import { readPage } from '../engine/engine.js'
import { nameOfSystem, systemKey } from '../records/keyspace.js'
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
      return this.#rows.engine.getMany(names.map(systemKey))
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
