import { describe, expect, test, vi } from 'vitest'
import { ATTACHED_MAX } from '../../src/limits.js'
import { META } from '../../src/store/leveldb/records/keyspace.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Op } from '../../src/txn/op.js'
import { codeOf, EngineFailure, failureOf, prewriteOf, put, TappedEngine, turn, utf8 } from '../store/support.js'
import { Attaching } from './attaching.js'

const MINUTE = 60_000

async function deletedAt(attaching: Attaching, key: string): Promise<Timestamp> {
  const { writes } = await attaching.database.store.mvccGetByKey({ key: utf8(key) })
  return writes.find(({ type }) => type === 'delete')?.commitTs ?? 0
}

test('a release deletes the attached keys in one transaction, and leaves the others alone', async () => {
  const attaching = await Attaching.open()
  const a = await attaching.grant('a')
  const b = await attaching.grant('b')
  for (const key of ['1', '2', '3']) await attaching.attach(key, 'a', a)
  await attaching.attach('4', 'b', b)
  await attaching.put('5')
  expect(await attaching.fenceOf('1')).toBe(a)
  expect(await attaching.database.leases.remove('a', 'me', a)).toEqual({ deleting: false })
  expect(await attaching.keys()).toEqual(['4', '5'])
  expect(await deletedAt(attaching, '1')).toBeGreaterThan(a)
  expect(await deletedAt(attaching, '2')).toBe(await deletedAt(attaching, '1'))
  expect(await deletedAt(attaching, '3')).toBe(await deletedAt(attaching, '1'))
  expect(await attaching.rows()).toBe(1)
  expect(await attaching.grant('a')).toBeGreaterThan(await deletedAt(attaching, '1'))
})

test('so does the end of its term, before the next grant', async () => {
  const attaching = await Attaching.open()
  const fence = await attaching.grant('a')
  await attaching.attach('1', 'a', fence)
  attaching.pass(999)
  expect(await attaching.keys()).toEqual(['1'])
  attaching.pass(1)
  const next = await attaching.grant('a')
  expect(await attaching.keys()).toEqual([])
  expect(next).toBeGreaterThan(await deletedAt(attaching, '1'))
  await attaching.attach('2', 'a', next)
  attaching.pass(1000)
  await expect.poll(() => attaching.keys()).toEqual([]) // Nobody asks for the lease.
  await expect.poll(() => attaching.rows()).toBe(0)
})

test('a renewal writes no version', async () => {
  const attaching = await Attaching.open()
  const fence = await attaching.grant('a')
  await attaching.attach('1', 'a', fence)
  const { commitTs: before } = (await attaching.database.store.get({ key: utf8('1') })) as { commitTs: Timestamp }
  for (let i = 0; i < 10; i++) {
    attaching.pass(900)
    await attaching.grant('a')
  }
  expect(await attaching.database.store.get({ key: utf8('1') })).toMatchObject({ commitTs: before })
})

test('a put without the lease ends the attachment, and a delete does; another lease takes it over', async () => {
  const attaching = await Attaching.open()
  const a = await attaching.grant('a')
  const b = await attaching.grant('b', MINUTE)
  for (const key of ['1', '2', '3', '4']) await attaching.attach(key, 'a', a)
  await attaching.put('1')
  await attaching.run([{ op: 'delete', key: utf8('2') }])
  await attaching.put('2')
  await attaching.attach('3', 'b', b)
  await attaching.database.leases.remove('a', 'me', a)
  expect(await attaching.keys()).toEqual(['1', '2', '3'])
  await attaching.database.leases.remove('b', 'me', b)
  expect(await attaching.keys()).toEqual(['1', '2'])
})

test('touch and increment keep it, in one phase and in two', async () => {
  const attaching = await Attaching.open()
  const { transactions, store } = attaching.database
  const fence = await attaching.grant('a', MINUTE)
  for (const key of ['1', '2', '3', '4', '5', 'plain']) {
    if (key === 'plain') await attaching.put(key, '1')
    else await attaching.attach(key, 'a', fence, '1')
  }
  const touch = (key: string): Op => ({ op: 'touch', key: utf8(key), expiry: { ttlMs: MINUTE } })
  const increment = (key: string): Op => ({ op: 'increment', key: utf8(key), by: 1 })
  await attaching.run([touch('1'), touch('1'), increment('1'), touch('plain')])
  await attaching.run([increment('2'), increment('plain'), increment('new')])
  for (const mode of ['optimistic', 'pessimistic'] as const) {
    const { txn } = await transactions.begin({ mode, isolation: 'snapshot', ttlMs: MINUTE })
    await transactions.run(txn, [increment('3'), touch('3')])
    await transactions.commit(txn, undefined)
  }
  const startTs = await store.tso(1)
  const mutations = [
    { ...put('4'), keepsLease: true },
    { ...put('5'), keepsLease: true },
  ]
  await store.prewrite(prewriteOf(startTs, mutations))
  await store.commit({ keys: [utf8('4')], startTs, commitTs: await store.tso(1) })
  // The end of the lease meets a lock of a committed transaction, and commits it first.
  for (const key of ['1', '2', '3', '4']) expect(await attaching.fenceOf(key), key).toBe(fence)
  expect(await attaching.fenceOf('plain')).toBeUndefined()
  await attaching.database.leases.remove('a', 'me', fence)
  expect(await attaching.keys()).toEqual(['new', 'plain'])
})

test('within a transaction the last write counts', async () => {
  const attaching = await Attaching.open()
  const fence = await attaching.grant('a')
  const lease = 'a'
  const key = (name: string) => ({ key: utf8(name) })
  await attaching.attach('6', 'a', fence, '1')
  await attaching.run(
    [
      { op: 'put', ...key('1'), value: utf8('1'), lease },
      { op: 'touch', ...key('1'), expiry: { ttlMs: MINUTE } },
      { op: 'insert', ...key('2'), value: utf8('1'), lease },
      { op: 'put', ...key('2'), value: utf8('1') },
      { op: 'put', ...key('3'), value: utf8('1'), lease },
      { op: 'delete', ...key('3') },
      { op: 'increment', ...key('3'), by: 1 },
      { op: 'put', ...key('4'), value: utf8('1') },
      { op: 'increment', ...key('4'), by: 1 },
      { op: 'put', ...key('5'), value: utf8('1') },
      { op: 'put', ...key('5'), value: utf8('1'), lease },
      { op: 'delete', ...key('6') },
      { op: 'increment', ...key('6'), by: 1 },
    ],
    [{ lease, fence }],
  )
  const fences = await Promise.all(['1', '2', '3', '4', '5', '6'].map((name) => attaching.fenceOf(name)))
  expect(fences).toEqual([fence, undefined, undefined, undefined, fence, undefined])
})

test('a lease that the transaction does not check is refused, and an open transaction stays open', async () => {
  const attaching = await Attaching.open()
  const { transactions, store } = attaching.database
  const fence = await attaching.grant('a')
  const attach: Op = { op: 'put', key: utf8('1'), value: utf8('1'), lease: 'a' }
  expect(await codeOf(attaching.run([attach]))).toBe('invalid_argument')
  expect(await codeOf(attaching.run([attach], [{ lease: 'b', fence }]))).toBe('invalid_argument')
  expect(await codeOf(attaching.run([attach], [{ lease: 'a', fence: fence - 1 }]))).toBe('precondition_failed')
  const { txn } = await transactions.begin({ mode: 'optimistic', isolation: 'snapshot', ttlMs: MINUTE })
  await transactions.run(txn, [attach])
  expect(await codeOf(transactions.commit(txn, undefined))).toBe('invalid_argument')
  expect(await attaching.keys()).toEqual([])
  await transactions.commit(txn, undefined, { leases: [{ lease: 'a', fence }] })
  expect(await attaching.fenceOf('1')).toBe(fence)
  const raw = async (rest: object) =>
    codeOf(attaching.database.prewrite(prewriteOf(await store.tso(1), [{ ...put('2'), leaseFence: fence }], rest)))
  expect(await raw({})).toBe('invalid_argument')
  expect(await raw({ tryOnePc: true })).toBe('invalid_argument')
  const commitEffects = { leases: [{ lease: 'a', fence: fence - 1 }] }
  expect(await raw({ tryOnePc: true, linearizable: true, commitEffects })).toBe('invalid_argument')
  expect(await raw({ tryOnePc: true, linearizable: true, commitEffects: { leases: [{ lease: 'a', fence }] } })).toBe(
    'none',
  )
  expect(await attaching.keys()).toEqual(['1', '2'])
})

test('keys that are locked are deleted as soon as they are not, and before the next grant', {
  tags: ['long'],
}, async () => {
  const attaching = await Attaching.open()
  const { store, leases } = attaching.database
  const fence = await attaching.grant('a', MINUTE)
  for (const key of ['1', '2']) await attaching.attach(key, 'a', fence)
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('2', 'later')], { lockTtl: MINUTE }))
  expect(await leases.remove('a', 'me', fence)).toEqual({ deleting: true })
  expect(await codeOf(attaching.attach('3', 'a', fence))).toBe('precondition_failed')
  expect(await attaching.keys().catch(() => 'locked')).toBe('locked')
  expect((await store.get({ key: utf8('1') })).found).toBe(true)
  expect(await failureOf(attaching.grant('a'))).toMatchObject({
    code: 'lease_held',
    fields: { lease: 'a', holder: 'me' },
  })
  const granted = leases.put('a', { holder: 'next', ttlMs: MINUTE, waitMs: MINUTE })
  await store.commit({ keys: [utf8('2')], startTs, commitTs: await store.tso(1) })
  attaching.pass(1000)
  const { fence: next } = await granted
  expect(await attaching.keys()).toEqual(['2']) // Its last version is not attached.
  expect(next).toBeGreaterThan(await deletedAt(attaching, '1'))
  expect(await attaching.rows()).toBe(0)
})

test('locked keys cost one look at a time, whoever waits for them, and nobody waits for longer than asked', {
  tags: ['long'],
}, async () => {
  const attaching = await Attaching.open()
  const { store, leases } = attaching.database
  const fence = await attaching.grant('a', MINUTE)
  for (const key of ['1', '2']) await attaching.attach(key, 'a', fence)
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('2', 'later')], { lockTtl: MINUTE }))
  const exclusive = vi.spyOn(store, 'exclusive')
  const answers: unknown[] = []
  const removing = Array.from({ length: 5 }, async () => answers.push(await leases.remove('a', 'me', fence)))
  expect(await codeOf(attaching.grant('a'))).toBe('lease_held')
  expect(answers).toEqual([])
  await Promise.all(removing)
  expect(answers).toEqual(Array(5).fill({ deleting: true }))
  expect(exclusive).toHaveBeenCalledTimes(1)
  await store.rollback({ keys: [utf8('2')], startTs })
  expect(await leases.remove('a', 'me', fence)).toEqual({ deleting: false })
  expect(await attaching.keys()).toEqual([])
})

test('leases whose keys stay locked do not hold up the end of another', { tags: ['long'] }, async () => {
  const attaching = await Attaching.open()
  const { store } = attaching.database
  const locked = Array.from({ length: 100 }, (_, i) => `locked-${i}`)
  for (const name of locked) await attaching.attach(name, name, await attaching.grant(name))
  const mutations = locked.map((key) => put(key, 'later'))
  await store.prewrite(prewriteOf(await store.tso(1), mutations, { lockTtl: MINUTE }))
  await attaching.attach('free', 'z', await attaching.grant('z', 1001))
  attaching.pass(1000)
  attaching.pass(1)
  await expect.poll(async () => (await store.get({ key: utf8('free') })).found).toBe(false)
})

test(`a lease has ${ATTACHED_MAX} keys at most`, { tags: ['long'], timeout: 30_000 }, async () => {
  const attaching = await Attaching.open()
  const fence = await attaching.grant('a', MINUTE)
  const ops = (from: number, to: number): Op[] =>
    Array.from({ length: to - from }, (_, i) => ({
      op: 'put',
      key: utf8(`k${from + i}`),
      value: utf8('1'),
      lease: 'a',
    }))
  const checked = [{ lease: 'a', fence }]
  expect(await codeOf(attaching.run(ops(0, ATTACHED_MAX + 1), checked))).toBe('invalid_argument')
  expect(await attaching.keys()).toEqual([])
  await attaching.run(ops(0, ATTACHED_MAX), checked)
  expect(await codeOf(attaching.run(ops(ATTACHED_MAX, ATTACHED_MAX + 1), checked))).toBe('invalid_argument')
  await attaching.run(ops(0, 100), checked) // They are attached already.
  await attaching.put('k7')
  // The keys are counted once per second at most.
  await expect.poll(() => codeOf(attaching.run(ops(ATTACHED_MAX, ATTACHED_MAX + 1), checked))).toBe('none')
  expect(await codeOf(attaching.run(ops(7, 8), checked))).toBe('invalid_argument')
  await attaching.database.leases.remove('a', 'me', fence)
  expect(await attaching.keys()).toEqual(['k7'])
  expect(await attaching.rows()).toBe(0)
})

test('an expired, a collected and a removed key leave nothing behind', async () => {
  const attaching = await Attaching.open()
  const { store } = attaching.database
  const fence = await attaching.grant('a', MINUTE)
  const value = utf8('1')
  const expiring: Op = { op: 'put', key: utf8('expired'), value, lease: 'a', expiry: { ttlMs: 10 } }
  await attaching.run([expiring], [{ lease: 'a', fence }])
  for (const key of ['collected', 'removed']) await attaching.attach(key, 'a', fence)
  await attaching.run([{ op: 'delete', key: utf8('collected') }])
  await store.deleteRange({ start: utf8('removed'), end: utf8('removed0') })
  attaching.pass(10)
  await attaching.database.collect({ safePoint: store.time.clock() })
  expect(await attaching.keys()).toEqual([])
  await attaching.database.leases.remove('a', 'me', fence)
  expect(await attaching.rows()).toBe(0)
  expect(attaching.errors).toEqual([])
})

test('a hot key does not hold the end up', async () => {
  const attaching = await Attaching.open()
  const fence = await attaching.grant('a', MINUTE)
  await attaching.attach('hot', 'a', fence, '0')
  let isOver = false
  const writing = Array.from({ length: 8 }, async () => {
    while (!isOver) await attaching.run([{ op: 'increment', key: utf8('hot'), by: 1 }]).catch(() => turn())
  })
  expect(await attaching.database.leases.remove('a', 'me', fence)).toEqual({ deleting: false })
  isOver = true
  await Promise.all(writing)
  expect(await attaching.fenceOf('hot')).toBeUndefined()
})

describe('over a restart', () => {
  test('a lease lives on with its keys, and ends with them', async () => {
    const attaching = await Attaching.open()
    const fence = await attaching.grant('a')
    await attaching.attach('1', 'a', fence)
    await attaching.restart()
    expect(await attaching.keys()).toEqual(['1'])
    await attaching.attach('2', 'a', fence) // Counts the keys first.
    await attaching.run([{ op: 'touch', key: utf8('1'), expiry: { ttlMs: MINUTE } }])
    await attaching.restart()
    attaching.pass(1000 + 2000)
    await expect.poll(() => attaching.keys()).toEqual([])
    await expect.poll(() => attaching.rows()).toBe(0)
  })

  test('the keys are counted by look-ups, without an iterator for each', async () => {
    const tapped = new TappedEngine()
    const attaching = await Attaching.open(tapped)
    const fence = await attaching.grant('a')
    for (let i = 0; i < 50; i++) await attaching.attach(`${i}`, 'a', fence)
    await attaching.restart()
    let steps = 0
    tapped.onNext = () => {
      steps++
    }
    await attaching.attach('0', 'a', fence)
    expect(steps).toBeLessThan(20)
  })

  test('a release that was answered while keys were locked stands', async () => {
    const attaching = await Attaching.open()
    const { store, leases } = attaching.database
    const fence = await attaching.grant('a', MINUTE)
    for (const key of ['1', '2']) await attaching.attach(key, 'a', fence)
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('2', 'later')], { lockTtl: MINUTE }))
    const granted = await store.system.get('lease/a')
    const removing = leases.remove('a', 'me', fence)
    await expect.poll(() => store.system.get('lease/a')).not.toEqual(granted)
    await attaching.restart()
    expect(await removing).toEqual({ deleting: true })
    expect(await codeOf(attaching.database.leases.get('a'))).toBe('not_found')
    expect(await codeOf(attaching.attach('3', 'a', fence))).toBe('precondition_failed')
    await attaching.database.store.rollback({ keys: [utf8('2')], startTs })
    attaching.pass(1000)
    await expect.poll(() => attaching.keys()).toEqual([])
    await attaching.grant('a')
  }, 20_000)

  test('keys of a lease whose record is lost are deleted', async () => {
    const attaching = await Attaching.open()
    const fence = await attaching.grant('a')
    await attaching.attach('1', 'a', fence)
    await attaching.put('2')
    await attaching.database.store.system.write([{ name: 'lease/a', value: undefined }])
    await attaching.restart()
    await expect.poll(() => attaching.keys()).toEqual(['2'])
    await expect.poll(() => attaching.rows()).toBe(0)
  })
})

test.each(['at once', 'open', 'raw'])(
  'a commit that was on its way (%s) when the lease ended is deleted with the others',
  async (how) => {
    const tapped = new TappedEngine()
    const attaching = await Attaching.open(tapped)
    const { database } = attaching
    const { transactions, leases, store } = database
    const fence = await attaching.grant('a')
    const { txn } = await transactions.begin({ mode: 'optimistic', isolation: 'snapshot', ttlMs: MINUTE })
    await transactions.run(txn, [{ op: 'put', key: utf8('1'), value: utf8('1'), lease: 'a' }])
    const startTs = await store.tso(1)
    let land = (): void => {}
    tapped.onWrite = (_, write) => new Promise((resolve, reject) => (land = () => void write().then(resolve, reject)))
    const commitEffects = { leases: [{ lease: 'a', fence }] }
    const mutation = { ...put('1'), leaseFence: fence }
    const attached =
      how === 'at once'
        ? attaching.attach('1', 'a', fence)
        : how === 'open'
          ? transactions.commit(txn, undefined, commitEffects)
          : database.prewrite(prewriteOf(startTs, [mutation], { tryOnePc: true, linearizable: true, commitEffects }))
    while (!tapped.writes.some(({ ops }) => ops.some(({ key }) => Buffer.from(key).includes('attached')))) await turn()
    const released = leases.remove('a', 'me', fence)
    for (let i = 0; i < 20; i++) await turn()
    tapped.onWrite = (_, write) => write()
    land()
    await attached
    expect(await released).toEqual({ deleting: false })
    expect(await attaching.keys()).toEqual([])
    expect(await attaching.rows()).toBe(0)
  },
)

test('the keys go in one batch with their rows, when the record says that the lease is over', async () => {
  const tapped = new TappedEngine()
  const attaching = await Attaching.open(tapped)
  const fence = await attaching.grant('a')
  const ops = Array.from(
    { length: 1000 },
    (_, i): Op => ({ op: 'put', key: utf8(`${i}`), value: utf8('1'), lease: 'a' }),
  )
  await attaching.run(ops, [{ lease: 'a', fence }])
  const before = tapped.writes.length
  await attaching.database.leases.remove('a', 'me', fence)
  const written = tapped.writes.slice(before).map(({ ops }) => {
    const puts = ops.filter(({ type, key }) => type === 'put' && Buffer.from(key)[0] !== META)
    return [puts.length, puts.filter(({ key }) => Buffer.from(key).includes('lease/')).length]
  })
  // Of each key and row the version and its copy, and the record of changes.
  expect(written.filter(([puts = 0]) => puts > 0)).toEqual([
    [1, 1],
    [4 * ops.length + 1, 0],
  ])
})

test('a release whose keys cannot be written away is told that the storage is not available', async () => {
  const tapped = new TappedEngine()
  const attaching = await Attaching.open(tapped)
  const fence = await attaching.grant('a')
  await attaching.attach('1', 'a', fence)
  tapped.onWrite = ({ ops }, land) =>
    ops.some(({ key }) => Buffer.from(key).includes('attached'))
      ? Promise.reject(new EngineFailure('no answer'))
      : land()
  const failure = await attaching.database.leases.remove('a', 'me', fence).catch((error: unknown) => error)
  expect(failure).toMatchObject({ code: 'storage_unavailable' })
  tapped.onWrite = (_, land) => land()
  await expect.poll(() => codeOf(attaching.put('2'))).toBe('none') // The database is open again.
  attaching.pass(MINUTE)
  await expect.poll(() => attaching.keys()).toEqual(['2'])
})
