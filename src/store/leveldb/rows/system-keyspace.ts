import { claimOf, type SystemName, type SystemRecords, type SystemWrite } from '../../system-records.js'
import { pagesOf } from '../engine/engine.js'
import { nameOfSystem, systemKey, systemRange } from '../records/keyspace.js'
import { PAGE } from './batch-sizes.js'
import { systemOp } from './engine-ops.js'
import { guard } from './guard.js'
import type { RowStore } from './row-store.js'

/** The system records in CF_SYSTEM. Names and keys share one table of latches, so that a transaction can claim both at once. */
export class SystemKeyspace implements SystemRecords {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  hold<T>(names: readonly string[], body: () => Promise<T>): Promise<T> {
    return this.#rows.latches.hold(names.map(claimOf), body)
  }

  get(name: SystemName): Promise<Uint8Array | undefined> {
    return guard(() => {
      this.#rows.health.requireWritable() // In doubt, the record may change when LevelDB is opened again.
      return this.#rows.engine.get(systemKey(name))
    })
  }

  list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>> {
    return guard(async () => {
      this.#rows.health.requireEngine()
      const found = new Map<SystemName, Uint8Array>()
      for await (const page of pagesOf(this.#rows.engine, systemRange(prefix), PAGE))
        for (const [stored, value] of page) found.set(nameOfSystem(stored), value)
      return found
    })
  }

  write(writes: readonly SystemWrite[]): Promise<void> {
    return guard(() => this.#rows.submit(writes.map(systemOp)))
  }
}
