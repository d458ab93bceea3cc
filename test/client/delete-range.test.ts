import { describe, expect, test } from 'vitest'
import { collect, failureOf } from '../coordinator/support.js'
import { BACKENDS, testDbs } from './backends.js'

describe.each(BACKENDS)('deleteRange, $backend', ({ openDb }) => {
  const start = testDbs(openDb)

  test('by and by, and in a transaction with its own writes', { tags: ['long'] }, async () => {
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
  })

  test('it ends with the key that fills its bytes', { tags: ['long'] }, async () => {
    const { db } = await start()
    const key = (i: number): string => `p/${String(i).padStart(3, '0')}`.padEnd(4096, 'x')
    for (let from = 0; from < 300; from += 100)
      await db.transaction(async (txn) => {
        for (let i = from; i < from + 100; i++) await txn.put(key(i), '')
      })
    expect(await db.deleteRange({ prefix: 'p/', limit: 100_000 })).toEqual({ deleted: 256, more: true })
    expect(await db.deleteRange({ prefix: 'p/', limit: 100_000 })).toEqual({ deleted: 44, more: false })
  })

  test('a range without bounds is refused', async () => {
    const { db } = await start()
    expect(await failureOf(db.deleteRange({} as { prefix: string }))).toBeInstanceOf(TypeError)
  })
})
