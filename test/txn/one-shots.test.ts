import { describe, expect, test } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Store } from '../../src/store/store.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import type { OneShot } from '../../src/txn/one-shot.js'
import { OneShots } from '../../src/txn/one-shots.js'
import type { Op } from '../../src/txn/op.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { codeOf, prewriteOf, put, read, TestClock, testStores, text, utf8, write } from '../store/support.js'

const stores = testStores()

async function start(): Promise<{
  store: Store
  run: (ops: readonly Op[], rest?: Partial<OneShot>) => Promise<string>
}> {
  const store = await stores.open()
  const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
  const oneShots = new OneShots(store, coordinator, new Outcomes(store, coordinator, DEFAULT_LIMITS))
  /** @returns the values that the ops answered. */
  const run = async (ops: readonly Op[], rest: Partial<OneShot> = {}): Promise<string> => {
    const { answer } = await oneShots.run({ checks: [], ops, maxRetries: 0, lockWaitMs: 0, ...rest })
    return answer.results.map((result) => ('value' in result ? text(result.value as Uint8Array) : '-')).join(' ')
  }
  return { store, run }
}

const key = utf8('n')
const increment = (by: number): Op => ({ op: 'increment', key, by })
const set = (value: string): Op => ({ op: 'put', key, value: utf8(value) })

test('each op sees the writes of those before it', async () => {
  const { run } = await start()
  expect(await run([increment(2), increment(3), { op: 'get', key }, { op: 'delete', key }, increment(1)])).toBe(
    '2 5 5 - 1',
  )
})

const counters: readonly [value: string, by: number, want: string][] = [
  ['-1', 1, '0'],
  ['007', 1, '8'],
  ['9223372036854775806', 1, '9223372036854775807'],
  ['9223372036854775807', 1, 'invalid_argument'],
  ['-9223372036854775808', -1, 'invalid_argument'],
  ['1.5', 1, 'invalid_argument'],
  ['', 1, 'invalid_argument'],
]
test.each(counters)('%j incremented by %d is %s', async (value, by, want) => {
  const { store, run } = await start()
  await run([set(value)])
  const code = await codeOf(run([increment(by)]))
  expect(code === 'none' ? await read(store, 'n') : code).toBe(want)
})

test('an op that fails undoes those before it', async () => {
  const { store, run } = await start()
  await run([set('1')])
  expect(await codeOf(run([increment(1), { op: 'insert', key, value: utf8('2') }]))).toBe('already_exists')
  expect(await read(store, 'n')).toBe('1')
})

test('a lock in the way is waited for as long as it may, and rolled back once its time is over', async () => {
  const { store, run } = await start()
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('n', 'locked')], { lockTtl: 60_000 }))
  expect(await codeOf(run([set('1')]))).toBe('key_locked')
  await store.rollback({ keys: [key], startTs })
  await store.prewrite(prewriteOf(await store.tso(1), [put('n', 'locked')], { lockTtl: 0 }))
  await run([set('2')], { lockWaitMs: 10_000 })
  expect(await read(store, 'n')).toBe('2')
})

describe('what is checked holds at commit_ts, where it is not written:', () => {
  const checks = [{ key: utf8('checked'), exists: true }]

  test('a version that expires in between', async () => {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const expireTs = (await store.tso(1)) + 10 * 2048
    await store.prewrite(prewriteOf(await store.tso(1), [{ ...put('checked'), expireTs }], { tryOnePc: true }))
    const batchGet: Store['batchGet'] = async (request) => {
      const answer = await store.batchGet(request)
      clock.ms += 20
      await store.tso(1)
      return answer
    }
    const slow = new Proxy(store, {
      get: (target, name) => {
        const value: unknown = name === 'batchGet' ? batchGet : Reflect.get(target, name)
        return typeof value === 'function' ? value.bind(target) : value
      },
    })
    const coordinator = new Coordinator(slow, commitOptionsOf(store.traits))
    const oneShots = new OneShots(slow, coordinator, new Outcomes(slow, coordinator, DEFAULT_LIMITS))
    const request = { checks, ops: [set('1')], maxRetries: 1, lockWaitMs: 0 }
    expect(await codeOf(oneShots.runAsync(request))).toBe('precondition_failed')
    expect(await read(store, 'n')).toBeUndefined()
  })

  test('a key that others may still write below a commit that is ahead of the clock', async () => {
    const { store, run } = await start()
    const now = await store.tso(1)
    await write(store, now, now + 10_000 * 2048, [put('n', 'ahead')])
    await write(store, now, await store.tso(1), [put('checked')])
    expect(await codeOf(run([set('1')], { checks }))).toBe('write_conflict')
    await run([set('1')], { checks: [{ key, value: utf8('ahead') }] })
    expect(await read(store, 'n')).toBe('1')
  })
})
