import { expect, test } from 'vitest'
import { IDEMPOTENCY_MS } from '../../src/limits.js'
import type { Idempotency } from '../../src/txn/idempotency.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { codeOf, TestClock, testStores, utf8 } from '../store/support.js'

const stores = testStores()

interface Answer {
  readonly n: number
}

async function start({ outcomeBytesMax = 1000, outcomesBytesMax = 1000 } = {}) {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now })
  const outcomes = new Outcomes(store, { outcomeBytesMax, outcomesBytesMax })
  let runs = 0
  /** Runs a request without writes of its own, whose outcome is stored. */
  const once = (idempotency: Idempotency | undefined, answer: object = { n: ++runs }) =>
    outcomes.once<object>(idempotency, 'all', undefined, async () => answer)
  return { clock, outcomes, once }
}

const request = (key: string, rest: Partial<Idempotency> = {}): Idempotency => ({
  key: utf8(key),
  mayWrite: true,
  fingerprint: utf8('a request'),
  ...rest,
})

test('a repeat is answered with the first outcome until that expires', async () => {
  const { clock, once } = await start()
  expect(await once(request('k'))).toEqual({ answer: { n: 1 }, isReplayed: false })
  clock.ms += IDEMPOTENCY_MS - 1
  expect(await once(request('k'))).toEqual({ answer: { n: 1 }, isReplayed: true })
  clock.ms += 1
  expect((await once(request('k'))).isReplayed).toBe(false)
})

test('another request under the same key is refused', async () => {
  const { once } = await start()
  await once(request('k'))
  expect(await codeOf(once(request('k', { fingerprint: utf8('another') })))).toBe('idempotency_mismatch')
})

test('of two copies at once the second waits for the first', async () => {
  const { once } = await start()
  const [first, second] = await Promise.all([once(request('k')), once(request('k'))])
  expect([first.isReplayed, second]).toEqual([false, { ...first, isReplayed: true }])
})

test('a failure is not remembered, nor is a request without a key', async () => {
  const { outcomes, once } = await start()
  const failing = outcomes.once<Answer>(request('k'), 'all', undefined, () => Promise.reject(new Error('failed')))
  await expect(failing).rejects.toThrow('failed')
  expect((await once(request('k'))).isReplayed).toBe(false)
  const { bytes } = outcomes
  await once(undefined)
  expect(outcomes.bytes).toBe(bytes)
})

test('a caller has half of the room, and expired outcomes give theirs back', async () => {
  const { clock, outcomes, once } = await start({ outcomesBytesMax: 200 })
  const filling = { of: utf8('x'.repeat(100)) }
  await once(request('a', { caller: 'ann' }), filling)
  expect(await codeOf(once(request('b', { caller: 'ann' })))).toBe('overloaded')
  await once(request('c', { caller: 'ben' }), filling)
  expect(await codeOf(once(request('d', { caller: 'cid' })))).toBe('overloaded')
  clock.ms += IDEMPOTENCY_MS + 60_000
  await outcomes.collect()
  expect(outcomes.bytes).toBe(0)
  expect(await codeOf(once(request('b', { caller: 'ann' })))).toBe('none')
})

test('an outcome that is too long is refused', async () => {
  const { outcomes, once } = await start({ outcomeBytesMax: 100 })
  expect(await codeOf(once(request('k'), { value: utf8('x'.repeat(101)) }))).toBe('payload_too_large')
  expect(outcomes.bytes).toBe(0)
})
