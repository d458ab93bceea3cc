import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { BIGTABLE } from '../../../src/store/table/bigtable/bigtable.js'
import { certainChange } from '../../../src/store/table/layout/certain-change.js'
import type { Changed } from '../../../src/store/table/layout/table.js'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

interface Ended {
  readonly outcome: unknown
  readonly ms: number
}

/** @param callMs how long the table lets a caller wait for an answer that does not come. */
async function changed(callMs: number, answers: readonly Changed[], isDone = false): Promise<Ended> {
  const left = [...answers]
  const expected = { family: 'v', qualifier: Buffer.from('r'), value: undefined } as const
  const change = async (_key: Buffer, _expected: unknown, _writes: unknown, withinMs = callMs): Promise<Changed> => {
    const answer = left.shift() ?? 'unknown'
    if (answer === 'unknown') await new Promise((resolve) => setTimeout(resolve, Math.min(callMs, withinMs)))
    return answer
  }
  const beganAt = performance.now()
  const ended = certainChange({ engine: BIGTABLE, change }, Buffer.from('key'), expected, [], {
    isDone: async () => isDone,
  })
    .catch((error: unknown) => error)
    .then((outcome): Ended => ({ outcome, ms: performance.now() - beganAt }))
  await vi.advanceTimersByTimeAsync(60_000)
  return ended
}

test.each([5000, 4000, 100, 0])(
  'a table that lets wait for %d ms in vain is given up after ten seconds',
  async (callMs) => {
    const { outcome, ms } = await changed(callMs, [])
    expect(outcome).toMatchObject({ code: 'storage_unavailable' })
    expect(ms).toBeGreaterThanOrEqual(10_000)
    expect(ms).toBeLessThan(10_050)
  },
)

test('a change that is refused after its answer was lost may have been done', async () => {
  expect((await changed(50, ['unknown', 'done'])).outcome).toBe(true)
  expect((await changed(50, ['refused'], true)).outcome).toBe(false)
  expect((await changed(50, ['unknown', 'refused'], true)).outcome).toBe(true)
  expect((await changed(50, ['unknown', 'refused'])).outcome).toBe(false)
})
