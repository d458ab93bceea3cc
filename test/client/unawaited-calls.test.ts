import { describe, expect, test } from 'vitest'
import type { Txn } from '../../src/client/index.js'
import { failureOf } from '../coordinator/support.js'
import { BACKENDS, testDbs } from './backends.js'

/** Every call of a transaction that gives a promise. `has` exists, and is no counter. */
const CALLS: Record<string, (txn: Txn) => unknown> = {
  get: (txn) => txn.get('has'),
  getVersion: (txn) => txn.getVersion('has'),
  getForUpdate: (txn) => txn.getForUpdate('has'),
  batchGet: (txn) => txn.batchGet(['has']),
  put: (txn) => txn.put('k', 'v'),
  'put that fails': (txn) => txn.put('k', 5 as never),
  touch: (txn) => txn.touch('has', { persist: true }),
  delete: (txn) => txn.delete('has'),
  deleteRange: (txn) => txn.deleteRange({ prefix: 'h' }),
  insert: (txn) => txn.insert('k', 'v'),
  'insert that fails': (txn) => txn.insert('has', 'v'),
  increment: (txn) => txn.increment('n'),
  min: (txn) => txn.min('n', 1),
  max: (txn) => txn.max('n', 1),
  'increment that fails': (txn) => txn.increment('has'),
  notify: (txn) => txn.notify('words', 'has'),
  'a page of scan': (txn) => txn.scan().next(),
}

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const start = testDbs(openDb)

  describe.each(['optimistic', 'pessimistic'] as const)('in an %s transaction', (mode) => {
    test.each(Object.entries(CALLS))('%s without await is a TypeError, and nothing is committed', async (_, call) => {
      const { db } = await start()
      const { commitTs } = await db.put('has', 'a value')
      const failure = await failureOf(db.transaction((txn) => void call(txn), { mode }))
      expect(failure).toBeInstanceOf(TypeError)
      expect(failure.message).toBe('a call of the transaction was not awaited: await each before the commit')
      expect(await db.getVersion('has')).toMatchObject({ value: 'a value', commitTs })
      expect(await db.count()).toBe(1)
    })
  })

  test('whatever waits for a call awaits it, before or after it is done', async () => {
    const { db } = await start()
    await db.transaction(async (txn) => {
      const later = txn.put('a', '1')
      await txn.put('b', '1')
      await later
      await Promise.all([txn.put('c', '1'), txn.insert('d', '1')])
      await txn.put('e', '1').then(() => txn.put('f', '1'))
      await txn.insert('a', '2').catch(() => {})
      return txn.put('g', '1')
    })
    expect(await db.transaction((txn) => txn.increment('n'))).toBe(1)
    expect(await db.count()).toBe(8)
  })

  test('a commit that was refused for it goes through once the call was awaited', async () => {
    const { db } = await start()
    const txn = await db.begin()
    const put = txn.put('k', 'v')
    expect(await failureOf(txn.commit())).toBeInstanceOf(TypeError)
    await put
    await txn.commit()
    expect(await db.get('k')).toBe('v')
  })

  test('an error of the function is the one that is thrown, and the calls that it left fail in silence', async () => {
    const { db } = await start()
    await db.put('has', 'a value')
    const run = (txn: Txn): never => {
      for (const call of Object.values(CALLS)) call(txn)
      throw new Error('of the function')
    }
    for (const mode of ['optimistic', 'pessimistic'] as const)
      expect((await failureOf(db.transaction(run, { mode }))).message).toBe('of the function')
  })
})
