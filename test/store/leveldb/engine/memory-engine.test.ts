import { rm } from 'node:fs/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import {
  type Engine,
  type EngineIterator,
  type EngineOp,
  type EngineRange,
  type EngineReader,
  readPage,
} from '../../../../src/store/leveldb/engine/engine.js'
import { MemoryEngine } from '../../../../src/store/leveldb/engine/memory-engine.js'
import { makeDirectory } from '../../support.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? (process.env['CI'] ? 100 : 20))

/** Few, with bytes of every kind and prefixes of each other; an engine has no empty keys. */
const key = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 3 }).map((bytes) => Buffer.from(bytes.map((byte) => byte & 0x81))),
  fc.nat(400).map((n) => Buffer.from(`k${n}`)),
)
const value = fc.oneof(
  fc.uint8Array({ maxLength: 4 }).map((bytes) => Buffer.from(bytes)),
  fc.constantFrom(1024, 1025, 5000).map((length) => Buffer.alloc(length, 0xe9)),
)
const op = fc.oneof(
  { weight: 3, arbitrary: fc.record({ type: fc.constant('put' as const), key, value }) },
  fc.record({ type: fc.constant('del' as const), key }),
)
const range = fc.record({ gte: key, lt: key, reverse: fc.boolean(), values: fc.boolean() })

const step = fc.oneof(
  fc.record({ call: fc.constant('write' as const), ops: fc.array(op, { maxLength: 30 }) }),
  /** Splits nodes. */
  fc.record({ call: fc.constant('fill' as const), from: fc.nat(400), count: fc.constant(100) }),
  fc.record({ call: fc.constant('drop' as const), from: fc.nat(400), count: fc.constant(100) }),
  fc.record({ call: fc.constant('get' as const), keys: fc.array(key, { maxLength: 5 }) }),
  fc.record({ call: fc.constant('snapshot' as const) }),
  fc.record({ call: fc.constant('iterate' as const), range, ofSnapshot: fc.boolean() }),
  fc.record({ call: fc.constant('next' as const), size: fc.constantFrom(1, 2, 300, 10_000) }),
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

/** What an engine answers to steps. Iterators are read while the engine changes. */
class Session {
  readonly #engine: Engine
  #snapshot: (EngineReader & { close(): Promise<void> }) | undefined
  #iterator: EngineIterator | undefined

  constructor(engine: Engine) {
    this.#engine = engine
  }

  async answer(asked: Step): Promise<unknown> {
    switch (asked.call) {
      case 'write':
        return this.#engine.write(asked.ops, false)
      case 'fill':
      case 'drop':
        return this.#engine.write(numbered(asked.call, asked.from, asked.count), false)
      case 'get': {
        const now = asked.keys.map((each) => this.#engine.getSync(each))
        const one = asked.keys[0] && (await this.#engine.get(asked.keys[0]))
        return [now, one, await this.#engine.getMany(asked.keys), await this.#snapshot?.getMany(asked.keys)]
      }
      case 'snapshot':
        await this.#iterator?.close() // It may be of the snapshot, which is closed after it.
        this.#iterator = undefined
        await this.#snapshot?.close()
        this.#snapshot = this.#engine.snapshot()
        return undefined
      case 'iterate':
        return this.#iterate(asked.range, asked.ofSnapshot)
      case 'next':
        return this.#next(asked.size)
    }
  }

  async #iterate(wanted: EngineRange, ofSnapshot: boolean): Promise<void> {
    await this.#iterator?.close()
    this.#iterator = ((ofSnapshot && this.#snapshot) || this.#engine).iterator(wanted)
  }

  async #next(size: number): Promise<unknown> {
    return (await this.#iterator?.nextv(size))?.map(([stored, bytes]) => [stored, bytes ?? Buffer.alloc(0)])
  }

  async close(): Promise<void> {
    await this.#iterator?.close()
    await this.#snapshot?.close()
  }
}

function numbered(call: 'fill' | 'drop', from: number, count: number): EngineOp[] {
  return Array.from({ length: count }, (_, i): EngineOp => {
    const stored = Buffer.from(`k${from + i}`)
    return call === 'fill' ? { type: 'put', key: stored, value: Buffer.from(`${i}`) } : { type: 'del', key: stored }
  })
}

let directory: string
let levelDb: Engine
beforeAll(async () => {
  directory = await makeDirectory()
  levelDb = await openLevelDb(directory)
})
afterAll(async () => {
  await levelDb.close()
  await rm(directory, { recursive: true })
})

test('the engine in memory answers as LevelDB does', { tags: ['long'] }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      await clear(levelDb)
      const engine = new MemoryEngine()
      const [asked, model] = [new Session(engine), new Session(levelDb)]
      const answers = [...steps, ...END]
      for (const each of answers) expect(await asked.answer(each)).toEqual(await model.answer(each))
      await Promise.all([asked.close(), model.close()])
    }),
    { numRuns: RUNS },
  )
})

/** A failed case leaves records too. */
async function clear(engine: Engine): Promise<void> {
  const left = await readPage(engine, { gte: Buffer.of(0), lt: Buffer.alloc(2, 0xff), values: false }, 10_000)
  const ops = left.map(([stored]): EngineOp => ({ type: 'del', key: stored }))
  await engine.write(ops, false)
}

/** All that is there at the end, both ways. */
const END: readonly Step[] = [false, true].flatMap((reverse): Step[] => [
  {
    call: 'iterate',
    range: { gte: Buffer.of(0), lt: Buffer.alloc(2, 0xff), reverse, values: true },
    ofSnapshot: false,
  },
  { call: 'next', size: 10_000 },
])

test('readers see a long batch as a whole, and bytes that change after a write change no record', async () => {
  const engine = new MemoryEngine()
  const ops = numbered('fill', 1000, 9000)
  const [first, last] = [Buffer.from('k1000'), Buffer.from('k9999')]
  let isOver = false
  const seen = new Set<string>()
  const look = (): void => {
    seen.add(`${engine.getSync(first) !== undefined} ${engine.getSync(last) !== undefined}`)
    if (!isOver) setImmediate(look)
  }
  look()
  const long = { type: 'put' as const, key: Buffer.from('long'), value: Buffer.alloc(2000, 1) }
  await Promise.all([engine.write(ops), engine.write([long])])
  isOver = true
  long.value.fill(2)
  look()
  expect([...seen]).toEqual(['false false', 'true true'])
  expect(engine.getSync(long.key)).toEqual(Buffer.alloc(2000, 1))
})
