import { describe, expect, test } from 'vitest'
import { afterKey } from '../../src/bytes/key-range.js'
import { asBuffer } from '../../src/bytes/key-text.js'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { KvError } from '../../src/errors/kv-error.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Stamp } from '../../src/percolator/stamped-key.js'
import type { Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Check } from '../../src/txn/check.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { OneShots } from '../../src/txn/one-shots.js'
import { namedAt, type Op } from '../../src/txn/op.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { codeOf, read, TestClock, testStores, text, utf8 } from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'
import { openTableStore } from '../store/table/open-table-store.js'
import { inTwoPhasesLatched } from '../store/two-phases.js'

const stores = testStores()

const KINDS = {
  'in one phase': async () => stores.open(),
  'in two phases': async () => inTwoPhasesLatched(await stores.open()),
  'on a shared table': () => openTableStore(new MemoryTable()),
} satisfies Record<string, () => Promise<Store>>
const kinds = Object.entries(KINDS)

const OPTIONS = { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 10_000 } as const

class Log {
  readonly coordinator: Coordinator
  readonly #oneShots: OneShots

  constructor(readonly store: Store) {
    this.coordinator = new Coordinator(store, commitOptionsOf(store.traits))
    this.#oneShots = new OneShots(store, this.coordinator, new Outcomes(store, this.coordinator, DEFAULT_LIMITS))
  }

  run(...ops: readonly Op[]) {
    return this.runIf([], ...ops)
  }

  async runIf(checks: readonly Check[], ...ops: readonly Op[]) {
    const { answer } = await this.#oneShots.run({ checks, ops, maxRetries: 100, lockWaitMs: 10_000 })
    const { commitTs = 0, results } = answer
    return { ...answer, commitTs, results: namedAt(results, commitTs) }
  }

  async entriesFrom(start: Uint8Array, limit: number) {
    const reader = this.coordinator.snapshot(await this.store.tso(1), { lockWaitMs: 10_000 })
    const { pairs } = await reader.scan({ start, end: utf8('log0'), limit, reverse: false, keyOnly: false })
    return pairs
  }

  all() {
    return this.entriesFrom(utf8('log/'), 10_000)
  }
}

const append = (value: string, key = 'log/', stamp: Stamp = 'bytes'): Op => ({
  ...{ op: 'put', key: utf8(key), value: utf8(value), stamp },
})
const increment: Op = { op: 'increment', key: utf8('n'), by: 1 }

function keyAt(key: string, commitTs: Timestamp, counter: number): Buffer {
  const stamp = Buffer.alloc(10)
  stamp.writeBigUInt64BE(BigInt(commitTs))
  stamp.writeUInt16BE(counter, 8)
  return Buffer.concat([utf8(key), stamp])
}

describe.each(kinds)('%s', (_, open) => {
  test('the key ends in the commit_ts and in the number of the put', async () => {
    const log = new Log(await open())
    const { commitTs, results } = await log.run(append('a'), append('b', 'other/'), increment, append('c'))
    const keys = [keyAt('log/', commitTs, 0), keyAt('other/', commitTs, 1), keyAt('log/', commitTs, 2)]
    const value = utf8('1')
    const names = keys.map((key) => ({ key: new Uint8Array(key) }))
    expect(results).toEqual([names[0], names[1], { value }, names[2]])
    const found = (await log.all()).map(({ key, value, commitTs }) => [key, text(value ?? utf8('')), commitTs])
    expect(found).toEqual([
      [keys[0], 'a', commitTs],
      [keys[2], 'c', commitTs],
    ])
    expect(await read(log.store, 'n')).toBe('1')
  })

  test('a string of Deno keys; the last put of a transaction counts', async () => {
    const log = new Log(await open())
    const { commitTs } = await log.run(append('a', 'log/', 'text'), append('b', 'log/', 'text'))
    const digits = `${commitTs.toString(16).padStart(16, '0')}0000`
    const found = (await log.all()).map(({ key, value }) => [asBuffer(key).toString('latin1'), text(value ?? utf8(''))])
    expect(found).toEqual([[`log/\x02${digits}\0`, 'b']])
  })

  test('a check beside nothing but a versionstamped put holds at the commit_ts', async () => {
    const log = new Log(await open())
    const key = utf8('a')
    for (let round = 0; round < 20; round++) {
      await log.run({ op: 'put', key, value: utf8('') })
      const [appended, deleted] = await Promise.allSettled([
        log.runIf([{ key, exists: true }], append('a')),
        log.run({ op: 'delete', key }),
      ])
      if (deleted.status === 'rejected') throw deleted.reason
      if (appended.status === 'fulfilled') expect(appended.value.commitTs).toBeLessThan(deleted.value.commitTs)
    }
  })

  test('a transaction may put what looks like its own start_ts', async () => {
    const log = new Log(await open())
    const txn = await log.coordinator.begin({ ...OPTIONS, isolation: 'serializable' })
    await txn.get(utf8('a'))
    const key = keyAt('log/', txn.startTs, 0)
    await txn.put(key, utf8('plain'))
    txn.putStamped(utf8('log/'), utf8('stamped'), 'bytes')
    const commitTs = await txn.commit()
    expect((await log.all()).map(({ key }) => key)).toEqual([key, keyAt('log/', commitTs, 0)])
    await log.run({ op: 'delete', key })
  })

  test('a reader that follows the log meets every entry, in the order of the commits', { tags: 'long' }, async () => {
    const log = new Log(await open())
    let left = 40
    const write = async (body: (number: number) => Promise<unknown>): Promise<void> => {
      while (left > 0) await body(left--)
    }
    const interactive = async (mode: 'optimistic' | 'pessimistic', number: number): Promise<void> => {
      const txn = await log.coordinator.begin({ ...OPTIONS, mode })
      if (mode === 'pessimistic') await txn.put(utf8('n'), utf8('0'))
      txn.putStamped(utf8('log/'), utf8(`${number}`), 'bytes')
      await txn.put(utf8(`own/${number}`), utf8(''))
      // Some commit_ts may have passed, and the program runs again.
      if ((await codeOf(txn.commit())) !== 'none') await interactive(mode, number)
    }
    const follow = async (limit: number): Promise<Buffer[]> => {
      const seen: Buffer[] = []
      let start: Uint8Array = utf8('log/')
      for (let isOver = false; ; ) {
        const pairs = await log.entriesFrom(start, limit)
        for (const { key } of pairs) seen.push(asBuffer(key))
        start = afterKey(pairs.at(-1)?.key ?? start)
        if (pairs.length === 0 && isOver) return seen
        isOver = pairs.length === 0 && left === 0 && writers.done
      }
    }
    const writers = { done: false }
    const writing = Promise.all([
      write((number) => log.run(append(`${number}`))),
      write((number) => log.run(append(`${number}`), increment)),
      write((number) => log.run(increment, append(`${number}`))),
      write((number) => interactive('optimistic', number)),
      write((number) => interactive('pessimistic', number)),
    ]).finally(() => {
      writers.done = true
    })
    const [one, three] = await Promise.all([follow(1), follow(3), writing])
    const all = await log.all()
    expect(all).toHaveLength(40)
    expect(new Set(all.map(({ value }) => text(value ?? utf8('')))).size).toBe(40)
    for (const { key, commitTs } of all) expect(key).toEqual(keyAt('log/', commitTs, 0))
    const keys = all.map(({ key }) => asBuffer(key).toString('hex'))
    expect(one.map((key) => key.toString('hex'))).toEqual(keys)
    expect(three.map((key) => key.toString('hex'))).toEqual(keys)
  })
})

test('a reader has been at the commit_ts before the keys were locked: the transaction loses', async () => {
  const store = inTwoPhasesLatched(await stores.open())
  let slow = 0
  let readTs = 0
  const slowed: Store = new Proxy(store, {
    get: (target, name) => {
      if (name !== 'prewrite') return Reflect.get(target, name)
      return async (request: Parameters<Store['prewrite']>[0]) => {
        if (slow-- > 0) {
          readTs = await target.tso(2_000_000)
          await target.scan({ start: utf8('log/'), end: utf8('log0'), limit: 10, ts: readTs })
        }
        return target.prewrite(request)
      }
    },
  })
  const log = new Log(slowed)
  for (const key of [undefined, 'a']) {
    slow = 1
    const txn = await log.coordinator.begin(OPTIONS)
    txn.putStamped(utf8('log/'), utf8('1'), 'bytes')
    if (key !== undefined) await txn.put(utf8(key), utf8('1'))
    expect(await codeOf(txn.commit())).toBe('write_conflict')
    expect(slow).toBe(0)
  }
  await log.coordinator.idle()
  expect((await store.scanLock({ maxTs: await store.tso(1), limit: 10 })).locks).toEqual([])
  expect(await log.all()).toEqual([])
  expect(await read(store, 'a')).toBeUndefined()
  const { commitTs } = await log.run(append('again'))
  expect(commitTs).toBeGreaterThan(readTs)
  expect((await log.all()).map(({ key }) => key)).toEqual([keyAt('log/', commitTs, 0)])
})

test('a key that somebody has guessed is left alone, and a later commit_ts is taken', async () => {
  const store = await stores.open({ now: new TestClock().now }) // So timestamps follow each other.
  const log = new Log(store)
  const startTs = await store.tso(1)
  const guesses = Array.from({ length: 6 }, (_, i) => keyAt('log/', startTs + i, 0))
  const [primary = utf8('')] = guesses
  const mutations = guesses.map((key) => ({ op: 'put', key, value: utf8('guessed') }) as const)
  await store.prewrite({ mutations, primary, startTs, lockTtl: 60_000 })
  const { commitTs } = await log.run(append('mine'))
  expect(commitTs).toBeGreaterThan(startTs + 5)
  await store.rollback({ keys: guesses, startTs })
  expect((await log.all()).map(({ key }) => key)).toEqual([keyAt('log/', commitTs, 0)])
})

test('no commit_ts can be chosen: the locks are released', async () => {
  const store = inTwoPhasesLatched(await stores.open())
  let isDown = false
  const failing: Store = new Proxy(store, {
    get: (target, name) => {
      if (name !== 'tso' || !isDown) return Reflect.get(target, name)
      return async () => {
        throw new KvError('storage_unavailable', 'no timestamps', {})
      }
    },
  })
  const { coordinator } = new Log(failing)
  const txn = await coordinator.begin({ ...OPTIONS, mode: 'pessimistic' })
  await txn.put(utf8('a'), utf8('1'))
  txn.putStamped(utf8('log/'), utf8('1'), 'bytes')
  isDown = true
  expect(await codeOf(txn.commit())).toBe('storage_unavailable')
  await coordinator.idle()
  isDown = false
  expect((await store.scanLock({ maxTs: await store.tso(1), limit: 10 })).locks).toEqual([])
})

test('bounds', async () => {
  const { coordinator } = new Log(await stores.open())
  const txn = await coordinator.begin({ ...OPTIONS, keysMax: 2, bytesMax: 100 })
  txn.putStamped(utf8('a'), utf8('1'), 'bytes')
  await expect(txn.atomically(async () => txn.putStamped(utf8('b'), Buffer.alloc(90), 'bytes'))).rejects.toThrow(
    'bytes',
  )
  await txn
    .atomically(async () => {
      txn.putStamped(utf8('b'), utf8(''), 'bytes')
      throw new Error('undone')
    })
    .catch(() => {})
  expect(txn.writes).toBe(1)
  expect(txn.bytes).toBe(12)
  await txn.put(utf8('c'), utf8(''))
  expect(await codeOf((async () => txn.putStamped(utf8('d'), utf8(''), 'bytes'))())).toBe('payload_too_large')
})
