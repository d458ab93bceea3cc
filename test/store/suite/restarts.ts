import { expect } from 'vitest'
import { codeOf, del, prewriteOf, put, read, TestClock, utf8, write } from '../support.js'
import { keyNumber, LONG, lockedKeys } from './contents.js'
import type { Contract } from './contract.js'

/** What is there again when a place is opened once more. */
export function restartCases(contract: Contract): void {
  const { open, needing } = contract

  needing('places')('the cursor secret stays the same', async () => {
    const place = await contract.place()
    const first = await open({ place })
    expect(first.cursorSecret.length).toBe(32)
    await first.close()
    expect((await open({ place })).cursorSecret).toEqual(first.cursorSecret)
  })

  needing('places')('timestamps go on above those before, though the clock stepped back', async () => {
    const place = await contract.place()
    const clock = new TestClock()
    const first = await open({ place, now: clock.now })
    const before = await first.tso(10)
    await first.close()
    clock.ms -= 3_600_000
    const second = await open({ place, now: clock.now })
    expect(await second.tso(1)).toBeGreaterThan(before)
  })

  needing('places', 'onePhaseCommit')(
    'a calculated commit timestamp goes above every read before the restart',
    async () => {
      const place = await contract.place()
      const clock = new TestClock()
      const first = await open({ place, now: clock.now })
      const readTs = await first.tso(1)
      expect(await read(first, 'a', readTs)).toBeUndefined()
      await first.close()
      const second = await open({ place, now: clock.now })
      const answer = await second.prewrite(prewriteOf(readTs - 1, [put('a')], { tryOnePc: true }))
      expect(answer.onePcCommitTs).toBeGreaterThan(readTs)
    },
  )

  needing('places')('everything committed, and every lock, is there again', async () => {
    const place = await contract.place()
    const first = await open({ place })
    await write(first, 5, 6, [put('a', '1'), put('long', LONG), del('gone')])
    await first.prewrite(prewriteOf(10, [put('a', '2'), put('b', LONG)], { minCommitTs: 11 }))
    await first.close()
    const second = await open({ place })
    expect(await lockedKeys(second)).toEqual(['a', 'b'])
    expect(await read(second, 'a', 9)).toBe('1')
    expect(await read(second, 'long', 9)).toBe(LONG)
    expect(await codeOf(read(second, 'b', 20))).toBe('key_locked')
    await second.commit({ keys: [utf8('a'), utf8('b')], startTs: 10, commitTs: 12 })
    expect(await read(second, 'a', 20)).toBe('2')
    expect(await read(second, 'b', 20)).toBe(LONG)
    expect(await lockedKeys(second)).toEqual([])
  })

  needing('places')('a thousand locks are all there again', async () => {
    const place = await contract.place()
    const first = await open({ place })
    const mutations = Array.from({ length: 1000 }, (_, i) => put(keyNumber(i), 'v'.repeat(50)))
    await first.prewrite(prewriteOf(10, mutations))
    await first.close()
    const second = await open({ place })
    expect(await lockedKeys(second)).toHaveLength(1000)
    expect(await codeOf(read(second, keyNumber(999), 20))).toBe('key_locked')
  })
}
