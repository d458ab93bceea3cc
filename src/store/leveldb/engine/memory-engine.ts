import { PersistentMap } from '../../../bytes/persistent-map.js'
import { runSliced } from '../../../event-loop/time-slicer.js'
import type { Engine, EngineIterator, EngineOp, EngineRange, EngineReader } from './engine.js'

/** Longer values stay Buffers. Short ones take less memory as strings. */
const TEXT_BYTES_MAX = 1024
const OPS_AT_A_TIME = 1024
const NO_VALUE = Buffer.alloc(0)

type Records = PersistentMap<string | Buffer>

export class MemoryEngine implements Engine {
  #records: Records = new PersistentMap()
  #written: Promise<void> = Promise.resolve()

  getSync(key: Buffer): Buffer | undefined {
    return valueIn(this.#records, key)
  }
  async get(key: Buffer): Promise<Buffer | undefined> {
    return valueIn(this.#records, key)
  }
  async getMany(keys: Buffer[]): Promise<(Buffer | undefined)[]> {
    return keys.map((key) => valueIn(this.#records, key))
  }
  iterator(range: EngineRange): EngineIterator {
    return iteratorOf(this.#records.snapshot(), range)
  }

  snapshot(): EngineReader & { close(): Promise<void> } {
    const records = this.#records.snapshot()
    return {
      get: async (key) => valueIn(records, key),
      getMany: async (keys) => keys.map((key) => valueIn(records, key)),
      iterator: (range) => iteratorOf(records, range),
      close: async () => {},
    }
  }

  write(ops: readonly EngineOp[]): Promise<void> {
    this.#written = this.#written.then(() => runSliced(this.#write(ops)))
    return this.#written
  }

  *#write(ops: readonly EngineOp[]): Generator<void, void, void> {
    // Readers between the slices of a long batch see none of it.
    const records = ops.length < OPS_AT_A_TIME ? this.#records : this.#records.snapshot()
    for (let i = 0; i < ops.length; i++) {
      if (i % OPS_AT_A_TIME === OPS_AT_A_TIME - 1) yield
      const op = ops[i] as EngineOp
      const key = op.key.toString('latin1')
      if (op.type === 'del') records.delete(key)
      else records.set(key, op.value.length > TEXT_BYTES_MAX ? Buffer.from(op.value) : op.value.toString('latin1'))
    }
    this.#records = records
  }

  async compactRange(): Promise<void> {}
  async approximateSize(): Promise<number> {
    return 0
  }
  async requireRoom(): Promise<void> {}
  async reopen(): Promise<void> {}
  async close(): Promise<void> {
    await this.#written
    this.#records = new PersistentMap()
  }
}

function valueIn(records: Records, key: Buffer): Buffer | undefined {
  const value = records.get(key.toString('latin1'))
  return value === undefined ? undefined : valueBuffer(value)
}

function valueBuffer(value: string | Buffer): Buffer {
  return typeof value === 'string' ? Buffer.from(value, 'latin1') : value
}

function iteratorOf(records: Records, { gte, lt, reverse = false, values = true }: EngineRange): EngineIterator {
  let from = gte.toString('latin1')
  let to = lt.toString('latin1')
  return {
    async nextv(size) {
      const found = records.range(from, to, size, reverse)
      const last = found.at(-1)?.[0]
      if (last !== undefined && reverse) to = last
      else if (last !== undefined) from = `${last}\0`
      return found.map(([key, value]) => [Buffer.from(key, 'latin1'), values ? valueBuffer(value) : NO_VALUE])
    },
    close: async () => {},
  }
}
