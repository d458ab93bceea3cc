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

  hold<T>(names: readonly SystemName[], body: () => Promise<T>): Promise<T> {
    return this.#rows.latches.hold(names.map(claimOf), body)
  }

  get(name: SystemName, isFinal?: (value: Uint8Array) => boolean): Promise<Uint8Array | undefined> {
    return guard(async () => {
      this.#rows.health.requireAvailable()
      const doubt = this.#rows.health.isWritable ? undefined : this.#rows.health.refusal()
      const value = await this.#rows.engine.get(systemKey(name))
      if (doubt !== undefined && (value === undefined || isFinal?.(value) !== true)) throw doubt
      return value
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

  sweep(prefix: SystemName, isOver: (value: Uint8Array) => boolean): Promise<number> {
    return guard(async () => {
      this.#rows.health.requireAvailable()
      let bytesLeft = 0
      for await (const page of pagesOf(this.#rows.engine, systemRange(prefix), PAGE)) {
        const over: SystemName[] = []
        for (const [stored, value] of page) {
          const name = nameOfSystem(stored)
          if (isOver(value)) over.push(name)
          else bytesLeft += name.length - prefix.length + value.length
        }
        if (over.length > 0) await this.#remove(over, isOver)
      }
      return bytesLeft
    })
  }

  /** Skips names that are held: their holders may take long, and may replace the records. */
  async #remove(names: readonly SystemName[], isOver: (value: Uint8Array) => boolean): Promise<void> {
    const free = names.filter((name) => this.#rows.latches.isFree(claimOf(name)))
    await this.hold(free, async () => {
      const values = await this.#rows.engine.getMany(free.map(systemKey))
      const gone = free.filter((_, i) => {
        const value = values[i]
        return value !== undefined && isOver(value)
      })
      if (gone.length > 0) await this.#rows.submit(gone.map((name) => systemOp({ name, value: undefined })))
    })
  }
}
