import { expect } from 'vitest'
import { prewriteOf, put, text, turn, utf8 } from '../support.js'
import type { Contract } from './contract.js'

const outcome = (key: string, record: string) => ({ key: utf8(key), record: utf8(record) })

/** Records of the server beside the keys of users: outcomes of idempotent requests, and what it remembers of itself. */
export function recordCases(contract: Contract): void {
  const { open, test, needing } = contract

  test('an outcome is there once it is stored, unless it has expired', async () => {
    const store = await open()
    expect(await store.outcome(utf8('k'))).toBeUndefined()
    await store.once(utf8('k'), () => store.putOutcome(outcome('k', 'first')))
    expect(text((await store.outcome(utf8('k'))) ?? utf8(''))).toBe('first')
    expect(await store.outcome(utf8('k'), (record) => text(record) === 'first')).toBeUndefined()
    await store.putOutcome(outcome('k', 'second'))
    expect(text((await store.outcome(utf8('k'))) ?? utf8(''))).toBe('second')
  })

  test('requests with one idempotency key run one after another', async () => {
    const store = await open()
    const order: string[] = []
    const run = (key: string, name: string) =>
      store.once(utf8(key), async () => {
        order.push(`${name} begins`)
        await turn()
        order.push(`${name} ends`)
      })
    const failing = store.once(utf8('k'), () => Promise.reject(new Error('on purpose')))
    await Promise.all([run('k', 'first'), run('k', 'second'), expect(failing).rejects.toThrow('on purpose')])
    expect(order).toEqual(['first begins', 'first ends', 'second begins', 'second ends'])
  })

  needing('onePhaseCommit')('an outcome is stored with the commit of its transaction', async () => {
    const store = await open()
    const { onePcCommitTs } = await store.prewrite(prewriteOf(10, [put('a')], { tryOnePc: true }), (answer) =>
      outcome('k', `committed at ${answer.onePcCommitTs}`),
    )
    expect(text((await store.outcome(utf8('k'))) ?? utf8(''))).toBe(`committed at ${onePcCommitTs}`)
  })

  test('expired outcomes are collected; the size of the others is answered', async () => {
    const store = await open()
    for (let i = 0; i < 20; i++) await store.putOutcome(outcome(`key ${i % 10}`, i % 2 === 0 ? 'old' : 'new!'))
    expect(await store.collectOutcomes((record) => text(record) === 'old')).toBe(5 * ('key 0'.length + 'new!'.length))
    expect(await store.outcome(utf8('key 0'))).toBeUndefined()
    expect(await store.outcome(utf8('key 1'))).toBeDefined()
  })

  test('records of the server are listed by the beginning of their names', async () => {
    const store = await open()
    for (const name of ['pin/b', 'pin/a', 'other']) await store.putServerRecord(name, utf8(`of ${name}`))
    const list = async (prefix: string) =>
      [...(await store.serverRecords(prefix))].map(([name, record]) => [name, text(record)])
    expect((await list('pin/')).sort()).toEqual([
      ['pin/a', 'of pin/a'],
      ['pin/b', 'of pin/b'],
    ])
    await store.putServerRecord('pin/a', undefined)
    await store.putServerRecord('pin/b', utf8('new'))
    expect(await list('pin/')).toEqual([['pin/b', 'new']])
    expect((await list('')).length).toBe(2)
  })

  test('records of the server are no keys of users', async () => {
    const store = await open()
    await store.putServerRecord('pin/a', utf8('1'))
    await store.putOutcome(outcome('k', '1'))
    expect((await store.scan({ ts: await store.tso(1), limit: 10 })).pairs).toEqual([])
    expect((await store.mvccGetByStartTs({ startTs: 1 })).key).toBeUndefined()
  })

  needing('places')('records of the server and outcomes stay over a restart', async () => {
    const place = await contract.place()
    const first = await open({ place })
    await first.putServerRecord('pin/a', utf8('1'))
    await first.putOutcome(outcome('k', '2'))
    await first.close()
    const second = await open({ place })
    expect([...(await second.serverRecords('pin/')).keys()]).toEqual(['pin/a'])
    expect(text((await second.outcome(utf8('k'))) ?? utf8(''))).toBe('2')
  })
}
