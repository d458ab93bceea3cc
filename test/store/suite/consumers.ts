import { expect } from 'vitest'
import { decodeConsumer } from '../../../src/changes/rules/codec/consumer.js'
import type { Consumer } from '../../../src/changes/rules/consumer.js'
import type { PrewriteMutation, PrewriteRequest } from '../../../src/percolator/api.js'
import type { PositionEffect } from '../../../src/percolator/commit-effects.js'
import { consumerWrite, nameOfConsumer } from '../../../src/store/consumers.js'
import type { Store } from '../../../src/store/store.js'
import { latchOf } from '../../../src/store/system-records.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { codeOf, failureOf, prewriteOf, put, utf8 } from '../support.js'
import type { Contract } from './contract.js'

/** Positions move in the batch of a transaction, or the transaction is refused. */
export function consumerCases(contract: Contract): void {
  const { open, needing } = contract
  const test = needing('onePhaseCommit')

  async function register(store: Store, name = 'copy'): Promise<Consumer> {
    const ts = await store.tso(1)
    const state = { position: ts, ackedTs: ts, startTs: 0, commitTs: 0 }
    const consumer = { id: ts, name, range: { prefix: utf8('doc/') }, holdMs: 1000, ...state }
    await store.system.write([consumerWrite(consumer)])
    return consumer
  }

  async function stored(store: Store, name = 'copy'): Promise<Consumer | undefined> {
    const record = await store.system.get(nameOfConsumer(name))
    return record && decodeConsumer(name, record)
  }

  async function commit(
    store: Store,
    mutations: readonly PrewriteMutation[],
    positions: readonly PositionEffect[],
    rest: Partial<PrewriteRequest> = {},
  ): Promise<Timestamp> {
    const startTs = rest.startTs ?? (await store.tso(1))
    const request = { tryOnePc: true, linearizable: true, commitEffects: { positions }, ...rest }
    return (await store.prewrite(prewriteOf(startTs, mutations, request))).onePcCommitTs ?? 0
  }

  const step = (from: Timestamp, ts: Timestamp, consumer = 'copy'): PositionEffect => ({ consumer, from, ts })

  test('a position moves with its transaction, and its listener is told', async () => {
    const store = await open()
    const told: Consumer[] = []
    store.consumers.listen({ moved: (consumer) => told.push(consumer), reloaded: () => {} })
    const { position } = await register(store)
    const ts = await store.tso(1)
    const startTs = await store.tso(1)
    const commitTs = await commit(store, [put('k')], [step(position, ts)], { startTs })
    expect(await store.get({ key: utf8('k') })).toMatchObject({ found: true, commitTs })
    expect(await stored(store)).toMatchObject({ position: ts, ackedTs: ts, startTs, commitTs })
    expect(told).toEqual([await stored(store)])
  })

  test('of two transactions that go on from one position one commits, and the other writes nothing', async () => {
    const store = await open()
    const { position } = await register(store)
    const ts = await store.tso(1)
    const ended = await Promise.allSettled(['a', 'b'].map((key) => commit(store, [put(key)], [step(position, ts)])))
    expect(ended.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    const { pairs } = await store.batchGet({ keys: [utf8('a'), utf8('b')] })
    expect(pairs).toHaveLength(1)
    const { code, fields } = await failureOf(commit(store, [put('c')], [step(position, ts)]))
    expect([code, fields]).toMatchObject([
      'write_conflict',
      { reason: 'acknowledged', consumer: 'copy', position: ts, retryable: false },
    ])
    expect(await store.get({ key: utf8('c') })).toMatchObject({ found: false })
  })

  test('positions of several consumers move together or not at all', async () => {
    const store = await open()
    const [one, two] = [await register(store, 'one'), await register(store, 'two')]
    const ts = await store.tso(1)
    const positions = [step(one.position, ts, 'one'), step(two.position - 1, ts, 'two')]
    expect(await codeOf(commit(store, [put('k')], positions))).toBe('write_conflict')
    expect((await stored(store, 'one'))?.position).toBe(one.position)
    await commit(store, [], [step(one.position, ts, 'one'), step(two.position, ts, 'two')])
    expect((await stored(store, 'two'))?.position).toBe(ts)
  })

  test('a repeat of a transaction of positions alone gets the same answer', async () => {
    const store = await open()
    const { position } = await register(store)
    const ts = await store.tso(1)
    const startTs = await store.tso(1)
    const commitTs = await commit(store, [], [step(position, ts)], { startTs })
    expect(await commit(store, [], [step(position, ts)], { startTs })).toBe(commitTs)
    const { code, fields } = await failureOf(commit(store, [put('k')], [step(position, ts)], { startTs }))
    expect([code, fields]).toMatchObject(['write_conflict', { reason: 'self_rolled_back' }])
  })

  test('a repeat of a transaction with writes gets the same answer, though the consumer is gone', async () => {
    const store = await open()
    const { position } = await register(store)
    const ts = await store.tso(1)
    const startTs = await store.tso(1)
    const commitTs = await commit(store, [put('k')], [step(position, ts)], { startTs })
    await store.system.write([{ name: nameOfConsumer('copy'), value: undefined }])
    expect(await commit(store, [put('k')], [step(position, ts)], { startTs })).toBe(commitTs)
  })

  test('unknown consumers, one consumer twice, steps back and timestamps in the future are refused', async () => {
    const store = await open()
    const { position } = await register(store)
    const ts = await store.tso(1)
    expect(await codeOf(commit(store, [put('k')], [step(position, ts, 'other')]))).toBe('not_found')
    for (const positions of [
      [step(position, ts), step(position, ts)],
      [step(ts, position)],
      [step(position, ts + 2 ** 40)],
    ]) {
      const { code, fields } = await failureOf(commit(store, [put('k')], positions))
      expect([code, fields]).toEqual(['invalid_argument', { field: 'riders' }])
    }
    expect(await stored(store)).toMatchObject({ position, startTs: 0 })
  })

  test('nothing is acknowledged above a lock that may still commit', async () => {
    const store = await open()
    const { position } = await register(store)
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    const ts = await store.tso(1)
    expect(await codeOf(commit(store, [put('k')], [step(position, ts)]))).toBe('invalid_argument')
    await store.rollback({ keys: [utf8('doc/1')], startTs })
    await commit(store, [put('k')], [step(position, ts)])
    expect((await stored(store))?.position).toBe(ts)
  })

  test('a transaction waits for whoever holds the record of its consumer', async () => {
    const store = await open()
    const consumer = await register(store)
    const ts = await store.tso(1)
    const order: string[] = []
    let committing: Promise<unknown> = Promise.resolve()
    await store.system.hold([nameOfConsumer('copy')], async () => {
      committing = commit(store, [put('k')], [step(consumer.position, ts)]).catch((error) => order.push(error.code))
      for (let i = 0; i < 20; i++) await new Promise(setImmediate)
      await store.system.write([consumerWrite({ ...consumer, position: ts, ackedTs: ts })])
      order.push('written')
    })
    await committing
    expect(order).toEqual(['written', 'write_conflict'])
  })

  test('a one-shot claims the record', async () => {
    const store = await open()
    const { position } = await register(store)
    const ts = await store.tso(1)
    const latchSet = { written: ['k', latchOf(nameOfConsumer('copy'))], read: [], isAlone: false }
    const commitEffects = { positions: [step(position, ts)] }
    const startTs = await store.tso(1)
    const request = prewriteOf(startTs, [put('k')], { tryOnePc: true, linearizable: true, commitEffects })
    await store.exclusive?.(latchSet, (prewrite) => prewrite(request))
    expect((await stored(store))?.position).toBe(ts)
  })

  needing('onePhaseCommit', 'places')('a position is there after a restart, and goes on', async () => {
    const at = await contract.place()
    const before = await open({ place: at })
    const { position } = await register(before)
    const ts = await before.tso(1)
    await commit(before, [put('k')], [step(position, ts)])
    await before.close()
    const store = await open({ place: at })
    expect((await stored(store))?.position).toBe(ts)
    // resolved_ts has not been asked for by anybody yet.
    const next = await store.tso(1)
    await commit(store, [put('k')], [step(ts, next)])
    expect((await stored(store))?.position).toBe(next)
  })
}
