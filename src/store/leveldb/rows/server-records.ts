import { asBuffer } from '../../../bytes/key-text.js'
import { pagesOf } from '../engine/engine.js'
import { metaKey, nameOfMeta } from '../records/keyspace.js'
import { PAGE, type RowStore } from './row-store.js'

/** Beside the keys of users: few, small and looked at rarely. */
const PREFIX = 'server/'

/** What the server has to remember of itself over restarts, by name. */
export class ServerRecords {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  put(name: string, record: Uint8Array | undefined): Promise<void> {
    const key = metaKey(PREFIX + name)
    return this.#rows.guard(() => {
      return this.#rows.submit([
        record === undefined ? { type: 'del', key } : { type: 'put', key, value: asBuffer(record) },
      ])
    })
  }

  list(prefix: string): Promise<ReadonlyMap<string, Uint8Array>> {
    return this.#rows.guard(async () => {
      this.#rows.requireEngine()
      const found = new Map<string, Uint8Array>()
      const range = { gte: metaKey(PREFIX + prefix), lt: metaKey(`${PREFIX}${prefix}\uffff`) }
      for await (const page of pagesOf(this.#rows.engine, range, PAGE))
        for (const [key, record] of page) found.set(nameOfMeta(key).slice(PREFIX.length), record)
      return found
    })
  }
}
