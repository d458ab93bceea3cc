import { describe, expect, test } from 'vitest'
import { RESERVED_PREFIX } from '../../src/bytes/reserved-keys.js'
import { Consumers, type ConsumersOptions } from '../../src/changes/consumers.js'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { PrewriteMutation } from '../../src/percolator/api.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import { codeOf, failureOf, prewriteOf, put, read, TestClock, testStores, utf8 } from '../store/support.js'

const stores = testStores()

function openConsumers(store: Store, options: Partial<ConsumersOptions> = {}): Promise<Consumers> {
  const onError = (error: unknown): void => {
    throw error
  }
  return Consumers.open(store, { limits: DEFAULT_LIMITS, onError, ...options })
}

async function start(options: Partial<ConsumersOptions> = {}) {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now, monotonicNow: clock.now })
  const consumers = await openConsumers(store, options)
  return { clock, store, consumers }
}

const DOCS = { range: { prefix: utf8('doc/') } }

async function commit(
  store: Store,
  mutations: readonly PrewriteMutation[],
  consumer?: string,
  from: Timestamp = 0,
  ts: Timestamp = 0,
): Promise<Timestamp> {
  const commitEffects = consumer === undefined ? undefined : { positions: [{ consumer, from, ts }] }
  const request = prewriteOf(await store.tso(1), mutations, { tryOnePc: true, linearizable: true, commitEffects })
  return (await store.prewrite(request)).onePcCommitTs ?? 0
}

const collect = (store: CompleteStore, safePoint: Timestamp) => collectGarbage(store, safePoint)

describe('a registration', () => {
  test('begins now, is found again, and takes another hold_ms but no other range', async () => {
    const { store, consumers } = await start()
    const before = await store.tso(1)
    const { isNew, state } = await consumers.put('copy', DOCS)
    expect(isNew).toBe(true)
    expect(state).toMatchObject({ name: 'copy', ...DOCS, holdMs: 86_400_000, lagMs: 0, isLost: false })
    expect(state.position).toBeGreaterThan(before)
    const same = { range: { start: utf8('doc/'), end: utf8('doc0') } }
    const again = await consumers.put('copy', { ...same, holdMs: 5000, sinceTs: before })
    expect(again).toEqual({ isNew: false, state: { ...state, ...same, holdMs: 5000 } })
    const { code, fields } = await failureOf(consumers.put('copy', { range: {} }))
    expect([code, fields]).toEqual(['already_exists', { consumer: 'copy' }])
    await consumers.put('all', { range: {} })
    expect((await consumers.list()).map(({ name }) => name)).toEqual(['all', 'copy'])
    await consumers.remove('copy')
    expect(await codeOf(consumers.get('copy'))).toBe('not_found')
  })

  test.each([
    ['a name with a slash', 'a/b', {}],
    ['an empty name', '', {}],
    ['a name of 129 characters', 'n'.repeat(129), {}],
    ['an empty range', 'copy', { range: { start: utf8('b'), end: utf8('b') } }],
    ['hold_ms 0', 'copy', { holdMs: 0 }],
    ['a hold_ms below a second', 'copy', { holdMs: 999 }],
    ['a hold_ms above the limit', 'copy', { holdMs: 86_400_001 }],
    ['a since_ts in the future', 'copy', { sinceTs: Number.MAX_SAFE_INTEGER }],
  ])('%s is refused', async (_, name, registration) => {
    const { consumers } = await start()
    expect(await codeOf(consumers.put(name, { ...DOCS, ...registration }))).toBe('invalid_argument')
    expect(await consumers.list()).toEqual([])
  })

  test('there are no more than the limit, however many come at once', async () => {
    const { consumers } = await start()
    const names = Array.from({ length: 110 }, (_, i) => `${i}`.padStart(128, 'n'))
    const codes = await Promise.all(names.map((name) => codeOf(consumers.put(name, DOCS))))
    expect(codes.filter((code) => code === 'overloaded')).toHaveLength(10)
    expect(await consumers.list()).toHaveLength(100)
    const [first] = await consumers.list()
    await consumers.remove(first?.name ?? '')
    await consumers.put('one', DOCS)
  })

  test('of two at once for one name one is new', async () => {
    const { consumers } = await start()
    const both = await Promise.all([consumers.put('copy', DOCS), consumers.put('copy', DOCS)])
    expect(both.map(({ isNew }) => isNew)).toEqual([true, false])
  })

  test('below what was collected it is refused', async () => {
    const { store, consumers } = await start()
    await collect(store, await store.tso(1))
    const { code, fields } = await failureOf(consumers.put('copy', { ...DOCS, sinceTs: 1 }))
    expect([code, fields]).toEqual(['ts_below_safe_point', { safePoint: store.safePoint }])
  })
})

describe('an acknowledgement', () => {
  test('never moves a position back, nor above resolved_ts', async () => {
    const { store, consumers } = await start()
    const { position } = (await consumers.put('copy', DOCS)).state
    expect((await consumers.ack('copy', 0)).position).toBe(position)
    const commitTs = await commit(store, [put('doc/1')])
    expect((await consumers.ack('copy', commitTs)).position).toBe(commitTs)
    expect((await consumers.ack('copy', position)).position).toBe(commitTs)
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    expect((await consumers.ack('copy', await store.tso(1))).position).toBe(startTs - 1)
    expect((await consumers.ack('copy', Number.MAX_SAFE_INTEGER)).position).toBe(startTs - 1)
    expect(await codeOf(consumers.ack('other', 1))).toBe('not_found')
  })

  test('in a transaction is known at once, and a reset undoes it', async () => {
    const { store, consumers } = await start()
    const { position } = (await consumers.put('copy', DOCS)).state
    const ts = await commit(store, [put('doc/1')])
    await commit(store, [put('copy/1')], 'copy', position, ts)
    expect(await consumers.get('copy')).toMatchObject({ position: ts })
    expect(await codeOf(commit(store, [put('copy/1')], 'copy', position, ts))).toBe('write_conflict')
    expect(await consumers.reset('copy', position)).toMatchObject({ position })
    await commit(store, [put('copy/1')], 'copy', position, ts)
    const now = await store.tso(1)
    expect((await consumers.reset('copy')).position).toBeGreaterThan(now)
    expect(await codeOf(consumers.reset('copy', Number.MAX_SAFE_INTEGER))).toBe('invalid_argument')
    expect(await codeOf(consumers.reset('other'))).toBe('not_found')
  })
})

test('the server’s own rows, which no feed tells of, are no lag', async () => {
  const { clock, store, consumers } = await start()
  await consumers.put('copy', DOCS)
  await commit(store, [{ op: 'put', key: Buffer.concat([RESERVED_PREFIX, utf8('test')]), value: utf8('1') }])
  clock.ms += 60_000
  expect((await consumers.get('copy')).lagMs).toBe(0)
})

describe('the server moves a position', () => {
  test('over everything that is not of its range', async () => {
    const { clock, store, consumers } = await start()
    await consumers.put('copy', DOCS)
    const commitTs = await commit(store, [put('other')])
    clock.ms += 60_000
    expect((await consumers.get('copy')).lagMs).toBe(60_000)
    await consumers.moveOn()
    const { position, lagMs } = await consumers.get('copy')
    expect(position).toBeGreaterThan(commitTs)
    expect(lagMs).toBe(0)
    clock.ms += 60_000
    await consumers.moveOn()
    expect((await consumers.get('copy')).position).toBeGreaterThan(position)
  })

  test('not over a change of its range, nor a delete_range that touches it, until that is acknowledged', async () => {
    const { store, consumers } = await start()
    for (const change of [
      () => commit(store, [put('doc/1')]),
      () => store.deleteRange({ start: utf8('do'), end: utf8('doc/0') }),
    ]) {
      const { position } = await consumers.reset('copy').catch(async () => (await consumers.put('copy', DOCS)).state)
      await commit(store, [put('other')])
      await change()
      const after = await store.tso(1)
      await consumers.moveOn()
      await consumers.moveOn()
      expect((await consumers.get('copy')).position).toBe(position)
      await consumers.ack('copy', after)
      await consumers.moveOn()
      expect((await consumers.get('copy')).position).toBeGreaterThan(after)
    }
  })

  test('not over what a reset leads back to', async () => {
    const { store, consumers } = await start()
    const { position } = (await consumers.put('copy', DOCS)).state
    await consumers.ack('copy', await commit(store, [put('doc/1')]))
    await consumers.moveOn()
    await consumers.reset('copy', position)
    await consumers.moveOn()
    expect((await consumers.get('copy')).position).toBe(position)
  })

  test('not above a lock that may still commit', async () => {
    const { store, consumers } = await start()
    await consumers.put('copy', DOCS)
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    await store.tso(1)
    await consumers.moveOn()
    expect((await consumers.get('copy')).position).toBeLessThan(startTs)
  })

  test.each([0, 1, 2])('and whoever goes on from a position that it has shown commits, once: %i', async (which) => {
    const { clock, store, consumers } = await start()
    const shown = [(await consumers.put('copy', DOCS)).state.position]
    for (let i = 0; i < 2; i++) {
      clock.ms += 10_000
      await consumers.moveOn()
      shown.push((await consumers.get('copy')).position)
    }
    const ts = await commit(store, [put('doc/1')])
    await commit(store, [put('copy/1')], 'copy', shown[which], ts)
    for (const from of shown)
      expect(await codeOf(commit(store, [put('copy/1')], 'copy', from, ts))).toBe('write_conflict')
  })

  test('up to the first change of its range once it is late, so that it lags no more than that', async () => {
    const { clock, store, consumers } = await start()
    await consumers.put('copy', { ...DOCS, sinceTs: 0 })
    const commitTs = await commit(store, [put('doc/1')])
    await consumers.moveOn()
    expect((await consumers.get('copy')).position).toBe(commitTs - 1)
    expect([...consumers.holders()]).toEqual([{ by: 'consumer', ts: commitTs - 1 }])
    clock.ms += 1000
    expect((await consumers.get('copy')).lagMs).toBe(1000)
  })
})

describe('collection', () => {
  test('is held back until the position lags by hold_ms, and then it is lost until a reset', async () => {
    const { clock, store, consumers } = await start()
    const { position } = (await consumers.put('copy', { ...DOCS, holdMs: 5000 })).state
    await commit(store, [put('doc/1')])
    clock.ms += 5000
    expect([...consumers.holders()]).toEqual([{ by: 'consumer', ts: position }])
    clock.ms += 10
    expect([...consumers.holders()]).toEqual([])
    expect(consumers.summary()).toEqual({ count: 1, lost: 0, lagMs: 5010 })
    await collect(store, await store.tso(1))
    expect(await consumers.get('copy')).toMatchObject({ position, isLost: true })
    expect(consumers.summary()).toEqual({ count: 1, lost: 1, lagMs: 0 })
    await consumers.moveOn()
    expect(await consumers.get('copy')).toMatchObject({ position, isLost: true })
    expect(await codeOf(consumers.reset('copy', position))).toBe('ts_below_safe_point')
    expect(await consumers.reset('copy')).toMatchObject({ isLost: false, lagMs: 0 })
  })

  test('is held back no longer than the limit, whatever was registered before', async () => {
    const { clock, store, consumers } = await start()
    await consumers.put('copy', DOCS)
    await consumers.close()
    const later = await openConsumers(store, { limits: { ...DEFAULT_LIMITS, holdMsMax: 2000 } })
    clock.ms += 2000
    expect([...later.holders()]).toHaveLength(1)
    clock.ms += 10
    expect([...later.holders()]).toHaveLength(0)
    expect((await later.put('new', DOCS)).state.holdMs).toBe(2000)
    await later.close()
  })
})

describe('a restart', () => {
  test('finds positions where they were', async () => {
    const { store, consumers } = await start()
    const { position } = (await consumers.put('copy', { range: { start: utf8('a') } })).state
    const ts = await commit(store, [put('doc/1')])
    await commit(store, [put('x')], 'copy', position, ts)
    const before = await consumers.get('copy')
    await consumers.close()
    const again = await openConsumers(store)
    expect(await again.get('copy')).toEqual({ ...before, range: { start: utf8('a'), end: undefined } })
    expect(await read(store, 'x')).toBe('value of x')
    await again.close()
  })
})
