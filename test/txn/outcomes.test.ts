import { expect, test } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { IDEMPOTENCY_MS } from '../../src/limits.js'
import { COMMIT_TS_OF_ROW, type Idempotency, type Once } from '../../src/txn/idempotency.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { codeOf, TestClock, testStores, utf8 } from '../store/support.js'

const stores = testStores()

async function start({ outcomeBytesMax = 1000, outcomesBytesMax = 1000 } = {}) {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now })
  const outcomes = new Outcomes(store, new Coordinator(store), { outcomeBytesMax, outcomesBytesMax })
  let runs = 0
  /** A request without writes of its own, whose outcome is stored. */
  const once = async (idempotency: Idempotency, answer: object = { n: ++runs }): Promise<Once<object>> => {
    const earlier = await outcomes.find<object>(idempotency)
    if (earlier !== undefined) return earlier
    await outcomes.store(idempotency, answer)
    return { answer, isReplayed: false }
  }
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

test('the commit_ts of an answer is that of its row, where the request did not know it', async () => {
  const { once } = await start()
  await once(request('k'), { commitTs: COMMIT_TS_OF_ROW })
  await once(request('l'), { commitTs: 7 })
  expect((await once(request('k'))).answer).toEqual({ commitTs: expect.toSatisfy((ts) => ts > 7) })
  expect((await once(request('l'))).answer).toEqual({ commitTs: 7 })
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
