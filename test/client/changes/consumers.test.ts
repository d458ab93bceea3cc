import { describe, expect, test } from 'vitest'
import type { ChangedTxn, Db } from '../../../src/client/index.js'
import { codeOf } from '../../store/support.js'
import { BACKENDS, testDbs } from '../backends.js'

/** The next transactions of a consumer, without going on. */
async function next(db: Db, consumer: string, count: number): Promise<ChangedTxn[]> {
  const txns: ChangedTxn[] = []
  for await (const txn of db.changes({ consumer })) if (txns.push(txn) === count) break
  return txns
}

const keysOf = (txns: readonly ChangedTxn[]): unknown[] =>
  txns.flatMap(({ changes }) => changes.map((change) => ('key' in change ? change.key : change)))

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const open = testDbs(openDb)

  test('a consumer is registered, read, listed and deleted', async () => {
    const { db } = await open()
    const { ts } = await db.snapshot()
    const state = await db.consumers.put('copy', { prefix: 'a/' }, { sinceTs: ts, holdMs: 5000 })
    expect(state).toMatchObject({ name: 'copy', prefix: 'a/', position: ts, holdMs: 5000, isLost: false })
    expect(await db.consumers.get('copy')).toEqual(state)
    expect(await codeOf(db.consumers.put('copy', { prefix: 'b/' }))).toBe('already_exists')
    await db.consumers.put('all')
    expect((await db.consumers.list()).map(({ name }) => name)).toEqual(['all', 'copy'])
    await db.consumers.delete('copy')
    expect(await codeOf(db.consumers.get('copy'))).toBe('not_found')
    expect(await codeOf(db.consumers.ack('copy', 1))).toBe('not_found')
    await expect(db.consumers.put('a name')).rejects.toThrow(TypeError)
    await expect(db.consumers.put('x', {}, { holdMs: 0 })).rejects.toThrow(TypeError)
  })

  test('a loop goes on from the position, which an acknowledgement moves and a reset sets anew', async () => {
    const { db } = await open()
    const { position: begin } = await db.consumers.put('copy', { prefix: 'a/' })
    for (const key of ['a/1', 'b/1', 'a/2', 'a/3']) await db.put(key, '1')
    const [first] = await next(db, 'copy', 1)
    expect(keysOf(await next(db, 'copy', 2))).toEqual(['a/1', 'a/2'])
    await db.consumers.ack('copy', first?.commitTs ?? 0)
    expect(keysOf(await next(db, 'copy', 2))).toEqual(['a/2', 'a/3'])
    expect((await db.consumers.ack('copy', begin)).position).toBe(first?.commitTs)
    await db.consumers.reset('copy', { sinceTs: begin })
    expect(keysOf(await next(db, 'copy', 1))).toEqual(['a/1'])
  })

  test('of two instances that apply the same changes in transactions one commits', async () => {
    const { db } = await open()
    const { position: from } = await db.consumers.put('sum', { prefix: 'n/' })
    await db.put('n/1', '1')
    const [txn] = await next(db, 'sum', 1)
    const ts = txn?.commitTs ?? 0
    const apply = () =>
      db.transaction((txn) => txn.put('total', '1'), { positions: [{ consumer: 'sum', from, ts }], retries: 0 })
    const codes = await Promise.all([codeOf(apply()), codeOf(apply())])
    expect(codes.sort()).toEqual(['none', 'write_conflict'])
    expect((await db.consumers.get('sum')).position).toBe(ts)
  })
})
