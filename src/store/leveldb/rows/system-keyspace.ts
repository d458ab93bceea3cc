import { lowestAfter } from '../../../bytes/sorted-map.js'
import { latchOf, type SystemName, type SystemRecords, type SystemWrite } from '../../system-records.js'
import { pagesOf } from '../engine/engine.js'
import { nameOfSystem, systemKey, systemRange } from '../records/keyspace.js'
import { PAGE } from './batch-sizes.js'
import { systemOp } from './engine-ops.js'
import { guard } from './guard.js'
import type { RowStore } from './row-store.js'

const NONE = new Uint8Array()

/** The system records in CF_SYSTEM. Names and keys share one table of latches, so that a transaction can latch both at once. */
export class SystemKeyspace implements SystemRecords {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  hold<T>(names: readonly string[], body: () => Promise<T>): Promise<T> {
    return this.#rows.latches.hold(names.map(latchOf), body)
  }

  get(name: SystemName): Promise<Uint8Array | undefined> {
    return guard(() => {
      this.#rows.health.requireWritable() // While a write is in doubt, the record may change when LevelDB is opened again.
      return this.#rows.engine.get(systemKey(name))
    })
  }

  many(names: readonly SystemName[]): Promise<readonly (Uint8Array | undefined)[]> {
    return this.#rows.records.many(names)
  }

  list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>> {
    return guard(async () => {
      const found = new Map<SystemName, Uint8Array>()
      for await (const page of this.pages(prefix)) for (const [name, value] of page) found.set(name, value)
      return found
    })
  }

  async *pages(
    prefix: SystemName,
    after?: SystemName,
  ): AsyncGenerator<readonly (readonly [SystemName, Uint8Array])[], void> {
    this.#rows.health.requireEngine()
    const { gte, lt } = systemRange(prefix)
    const above = after === undefined ? gte : systemKey(lowestAfter(after, prefix) as SystemName)
    for await (const page of pagesOf(this.#rows.engine, { gte: above, lt }, PAGE))
      yield page.map(([stored, value]) => [nameOfSystem(stored), value] as const)
  }

  write(writes: readonly SystemWrite[]): Promise<void> {
    return guard(() => this.#rows.submit(writes.map(systemOp)))
  }

  async replace(
    name: SystemName,
    expected: Uint8Array | undefined,
    value: Uint8Array | undefined,
    extraRecords: readonly SystemWrite[] = [],
  ): Promise<boolean> {
    const present = await this.get(name)
    if (Buffer.compare(present ?? NONE, expected ?? NONE) !== 0) return false
    await this.write([{ name, value }, ...extraRecords])
    return true
  }
}
