import { expect, test } from 'vitest'
import { Burst } from '../../src/rate-limit/burst.js'
import type { Hits } from '../../src/rate-limit/hits.js'

/** Calls that wait for the test. */
function heldBack() {
  const calls: { readonly by: number; answer(hits: Hits): void; fail(error: Error): void }[] = []
  const count = (by: number) =>
    new Promise<Hits>((answer, fail) => {
      calls.push({ by, answer, fail })
    })
  return { calls, count }
}

test('hits that come while one is on its way are counted by one call, each with a count of its own', async () => {
  const burst = new Burst()
  const { calls, count } = heldBack()
  const hits = [1, 1, 2, -1, 1].map((by) => burst.hit('ann', by, count))
  expect(calls.map(({ by }) => by)).toEqual([1])
  calls[0]?.answer({ count: 7, leftMs: 50 })
  await expect.poll(() => calls.map(({ by }) => by)).toEqual([1, 3])
  calls[1]?.answer({ count: 10, leftMs: 40 })
  const late = { leftMs: 40 }
  expect(await Promise.all(hits)).toEqual([
    { count: 7, leftMs: 50 },
    { count: 8, ...late },
    { count: 10, ...late },
    { count: 9, ...late },
    { count: 10, ...late },
  ])
  void burst.hit('ann', 1, count)
  expect(calls).toHaveLength(3)
})

test('a call that fails fails its hits alone', async () => {
  const burst = new Burst()
  const { calls, count } = heldBack()
  const hits = Promise.allSettled([1, 1, 1].map((by) => burst.hit('ann', by, count)))
  const wrong = burst.hit('ann', 1.5, count).catch((error: Error) => error.message)
  const other = burst.hit('bob', 1, count)
  expect(calls.map(({ by }) => by)).toEqual([1, 1.5, 1])
  calls[0]?.fail(new Error('lost'))
  calls[1]?.fail(new Error('no integer'))
  calls[2]?.answer({ count: 1, leftMs: undefined })
  await expect.poll(() => calls).toHaveLength(4)
  calls[3]?.answer({ count: 2, leftMs: 1 })
  expect((await hits).map((one) => (one.status === 'fulfilled' ? one.value.count : 'failed'))).toEqual(['failed', 1, 2])
  expect(await wrong).toBe('no integer')
  expect(await other).toEqual({ count: 1, leftMs: undefined })
})
