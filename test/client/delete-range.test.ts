import { describe, expect, test } from 'vitest'
import { collect, failureOf } from '../coordinator/support.js'
import { HOMES, testDbs } from './homes.js'

describe.each(HOMES)('deleteRange, $home', ({ openDb }) => {
  const start = testDbs(openDb)

  test('by and by, and in a transaction with its own writes', async () => {
    const { db } = await start()
    for (let i = 0; i < 40; i++) await db.put(`p/${String(i).padStart(2, '0')}`, 'x')
    await db.put('q', 'stays')
    expect(await db.deleteRange({ prefix: 'p/', limit: 35 })).toEqual({ deleted: 35, more: true })
    const inside = await db.transaction(async (txn) => {
      await txn.delete('p/35')
      await txn.put('p/99', 'own')
      return txn.deleteRange({ prefix: 'p/' })
    })
    expect(inside).toEqual({ deleted: 5, more: false })
    expect((await collect(db.scan())).map(({ key }) => key)).toEqual(['q'])
    expect(await failureOf(db.deleteRange({} as { prefix: string }))).toBeInstanceOf(TypeError)
  })
})
