import { expect } from 'vitest'
import type { LatchSet } from '../../../src/store/latch-set.js'
import { prewriteOf, put, read, write } from '../support.js'
import type { Contract } from './contract.js'

/** Keys that a body has to itself. */
export function exclusiveCases({ open, test, needing }: Contract): void {
  const latchSet = (...written: string[]): LatchSet => ({ written, read: [], isAlone: false })

  needing('onePhaseCommit')('others wait; the prewrite handed in does not', async () => {
    const store = await open()
    const order: string[] = []
    const inside = store.exclusive(latchSet('a', 'b'), async (prewrite) => {
      const other = store.prewrite(prewriteOf(10, [put('a', 'other')], { tryOnePc: true })).then(
        () => 'written',
        (error: { code?: string }) => error.code,
      )
      expect(await read(store, 'a', 20)).toBeUndefined()
      await prewrite(prewriteOf(20, [put('a', '1'), put('b', '2')], { tryOnePc: true }))
      order.push('exclusive')
      return { other }
    })
    const { other } = await inside
    expect(await other).toBe('write_conflict')
    expect(await read(store, 'a')).toBe('1')
    expect(order).toEqual(['exclusive'])
  })

  test('a body that throws lets the keys go', async () => {
    const store = await open()
    const failing = store.exclusive(latchSet('a'), async () => {
      throw new Error('on purpose')
    })
    await expect(failing).rejects.toThrow('on purpose')
    await write(store, 5, 6, [put('a', '1')])
  })
}
