import { type ClientRequest, request } from 'node:http'
import { describe, expect, test, vi } from 'vitest'
import { type Claimed, Observing } from './observing.js'
import { expectProblem, type Json, listOf, numberOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()
const put = (key: string, value = 'v'): Json => ({ op: 'put', key, value })

/** Longer than any test runs: what comes back earlier was woken. */
const LONG_MS = 60_000

async function watches(server: TestServer): Promise<number> {
  return numberOf(okBody(await server.get('/v1/status'))['overload'] as Json, 'watches')
}

async function untilWaiting(server: TestServer, count: number): Promise<void> {
  await vi.waitFor(async () => expect(await watches(server)).toBe(count), { interval: 5 })
}

describe('a claim', () => {
  test('takes what commits have marked, by whatever road', async () => {
    const server = await start()
    await server.put('doc/gone', 'v')
    const words = await Observing.of(server)
    const one = await server.put('doc/1', 'a')
    const gone = await server.remove('doc/gone')
    const { commit_ts: two } = await server.txn({ ops: [put('doc/2'), put('else')] })
    const { ts: startTs } = await server.ok('tso', {})
    await server.lock(numberOf({ startTs }, 'startTs'), ['doc/3'])
    const { ts: three } = await server.ok('tso', {})
    await server.ok('commit', { keys: ['doc/3'], start_ts: startTs, commit_ts: three })
    const claims = await words.claim({ limit: 9, values: true })
    const shown = claims.map(({ key, kind, commit_ts, found, attempt }) => ({ key, kind, commit_ts, found, attempt }))
    const cell = { found: true, kind: 'put', attempt: 1 }
    expect(shown.sort((a, b) => a.commit_ts - b.commit_ts)).toEqual([
      { ...cell, key: 'doc/1', commit_ts: one },
      { ...cell, key: 'doc/gone', kind: 'delete', commit_ts: gone, found: false },
      { ...cell, key: 'doc/2', commit_ts: two },
      { ...cell, key: 'doc/3', commit_ts: three },
    ])
    for (const { fence, commit_ts } of claims) expect(fence).toBeGreaterThan(commit_ts)
    expect(new Set(claims.map(({ fence }) => fence)).size).toBe(4)
    expect(await words.claim({ limit: 9 })).toEqual([])
  })

  test('shows a value only when it is asked for, and of a locked key none', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.put('doc/1', 'to be')
    const plain = await words.claimOne()
    expect(Object.keys(plain).sort()).toEqual(['attempt', 'commit_ts', 'fence', 'key', 'kind'])
    await words.release([plain])
    expect(await words.claimOne({ values: true })).toMatchObject({ found: true, value: 'to be', attempt: 1 })
    await server.put('doc/2', 'b')
    const { ts } = await server.ok('tso', {})
    await server.lock(numberOf({ ts }, 'ts'), ['doc/2'], { lock_ttl: LONG_MS })
    const locked = await words.claimOne({ values: true })
    expect(locked).toMatchObject({ key: 'doc/2' })
    expect(locked.found).toBeUndefined()
    expect(locked.value).toBeUndefined()
  })

  test('shows the value that an expired key had', async () => {
    const server = await start()
    const words = await Observing.of(server)
    for (const value of ['remind ann', 'x'.repeat(500)]) {
      okBody(await server.send('PUT', '/v1/kv/doc/1?ttl_ms=1', {}, value))
      while ((await server.get('/v1/kv/doc/1')).statusCode !== 404) {}
      // Its expiry may not have marked it yet, and is covered by this run.
      const soon = await words.claimOne({ values: true })
      expect(soon).toMatchObject({ found: false, old: value })
      await words.acked(soon)
      okBody(await server.send('PUT', '/v1/kv/doc/1?ttl_ms=200', {}, value))
      let claimed = await words.claimOne({ values: true, wait_ms: LONG_MS })
      while (claimed.kind !== 'expired') {
        await words.acked(claimed)
        claimed = await words.claimOne({ values: true, wait_ms: LONG_MS })
      }
      expect(claimed).toMatchObject({ found: false, old: value })
      expect(claimed.value).toBeUndefined()
      await words.release([claimed])
      // With another value it is not absent.
      await server.put('doc/1', 'again')
      const again = await words.claimOne({ values: true })
      expect(again).toMatchObject({ found: true, value: 'again' })
      expect(again).not.toHaveProperty('old')
      await words.acked(again)
    }
  })

  test('shows one cell of a key that changes often, at its newest change', async () => {
    const server = await start()
    const words = await Observing.of(server)
    let newest = 0
    for (let i = 0; i < 5; i++) newest = await server.put('doc/1', `${i}`)
    expect(await words.claimOne({ values: true })).toMatchObject({ commit_ts: newest, value: '4' })
  })

  test('of more than its limit leaves the rest', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.txn({ ops: Array.from({ length: 7 }, (_, i) => put(`doc/${i}`)) })
    const sizes = []
    const seen = new Set<string>()
    for (const limit of [undefined, 2, 1000]) {
      const claims = await words.claim(limit === undefined ? {} : { limit })
      sizes.push(claims.length)
      for (const { key } of claims) seen.add(key)
    }
    expect(sizes).toEqual([1, 2, 4])
    expect(seen.size).toBe(7)
  })

  test.each<[Json, string]>([
    [{ worker: undefined }, 'worker'],
    [{ worker: '' }, 'worker'],
    [{ worker: 'w'.repeat(256) }, 'worker'],
    [{ worker: 'a\nb' }, 'worker'],
    [{ worker: '\ud800' }, 'worker'],
    [{ worker: 5 }, 'worker'],
    [{ limit: 0 }, 'limit'],
    [{ limit: 1001 }, 'limit'],
    [{ wait_ms: -1 }, 'wait_ms'],
    [{ wait_ms: 60_001 }, 'wait_ms'],
    [{ lease_ms: 99 }, 'lease_ms'],
    [{ lease_ms: 3_600_001 }, 'lease_ms'],
    [{ values: 'yes' }, 'values'],
    [{ keys: [] }, 'keys'],
  ])('of %j is 400, and takes nothing', async (body, field) => {
    const server = await start()
    const words = await Observing.of(server)
    await server.put('doc/1', 'v')
    expectProblem(await words.post('claim', { worker: 'w', ...body }), 'invalid_argument', { field })
    expect(await words.state()).toMatchObject({ claimed: 0, pending: 1, workers: [] })
  })

  test('takes all that it may', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.put('doc/1', 'v')
    const worker = `${'é'.repeat(254)} `
    await words.claim({ worker, limit: 1000, wait_ms: 60_000, lease_ms: 3_600_000, values: true })
    const [seen, ...others] = listOf(await words.state(), 'workers')
    expect(seen).toEqual({ worker, claimed: 1, seen_at: expect.stringMatching(/^\d{4}-.*T.*\.\d{3}Z$/) })
    expect(others).toEqual([])
  })
})

describe('a claim that waits', () => {
  test('ends with a change', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const waiting = words.claimOne({ wait_ms: LONG_MS, values: true })
    await untilWaiting(server, 1)
    const commitTs = await server.put('doc/1', 'to be')
    expect(await waiting).toMatchObject({ key: 'doc/1', commit_ts: commitTs, value: 'to be' })
    expect(await watches(server)).toBe(0)
  })

  test('has its change to itself', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const waiting = Array.from({ length: 5 }, () => words.claimOne({ wait_ms: LONG_MS, limit: 1 }))
    await untilWaiting(server, 5)
    await server.txn({ ops: Array.from({ length: 5 }, (_, i) => put(`doc/${i}`)) })
    const keys = (await Promise.all(waiting)).map(({ key }) => key)
    expect(keys.sort()).toEqual(['doc/0', 'doc/1', 'doc/2', 'doc/3', 'doc/4'])
  })

  test('ends with a notification, a release, a lease that runs out', async () => {
    const server = await start()
    const words = await Observing.of(server, { prefix: 'doc/', backoff_ms: 0 })
    const awakened = async (wake: () => Promise<unknown>): Promise<Claimed> => {
      const waiting = words.claimOne({ wait_ms: LONG_MS, lease_ms: 1000 })
      await untilWaiting(server, 1)
      await wake()
      return waiting
    }
    const first = await awakened(() => words.post('notify', { keys: ['doc/1'] }))
    expect(first.attempt).toBe(1)
    await words.post('extend', { claims: [{ key: first.key, fence: first.fence }], lease_ms: LONG_MS })
    const second = await awakened(() => words.release([first]))
    expect(second).toMatchObject({ key: 'doc/1', attempt: 1 })
    expect(await words.claimOne({ wait_ms: LONG_MS, lease_ms: LONG_MS })).toMatchObject({ key: 'doc/1', attempt: 2 })
  })

  test('ends with its time, empty', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.put('else', 'v')
    expect(await words.claim({ wait_ms: 1 })).toEqual([])
  })

  test('ends with a pause, empty, and with the observer, 404', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const paused = words.claim({ wait_ms: LONG_MS })
    await untilWaiting(server, 1)
    okBody(await words.post('pause'))
    expect(await paused).toEqual([])
    okBody(await words.post('resume'))
    const removed = words.post('claim', { worker: 'w', wait_ms: LONG_MS })
    await untilWaiting(server, 1)
    okBody(await words.send('DELETE', ''))
    expectProblem(await removed, 'not_found')
  })

  test('ends when the server closes, empty', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const waiting = words.post('claim', { worker: 'w', wait_ms: LONG_MS })
    await untilWaiting(server, 1)
    await server.app.close()
    const answer = await waiting
    expect(okBody(answer)).toEqual({ notifications: [] })
    if (!(':status' in answer.headers)) expect(answer.headers['connection']).toBe('close') // HTTP/2 has none.
  })

  test('is no request in flight, and there are so many at most', async () => {
    const server = await start({ limits: { requestsMax: 2, watchesMax: 3 } })
    const words = await Observing.of(server)
    const waiting: Promise<Claimed[]>[] = []
    for (let i = 1; i <= 3; i++) {
      waiting.push(words.claim({ wait_ms: LONG_MS }))
      await untilWaiting(server, i)
    }
    const { requests } = okBody(await server.get('/v1/status'))['overload'] as Json
    expect(requests).toBe(0)
    const tooMany = await words.post('claim', { worker: 'w', wait_ms: 1 })
    expectProblem(tooMany, 'overloaded')
    expect(tooMany.headers['retry-after']).toBeDefined()
    expect(await words.claim({ wait_ms: 0 })).toEqual([])
    await server.txn({ ops: [put('doc/1'), put('doc/2'), put('doc/3')] })
    expect((await Promise.all(waiting)).flat()).toHaveLength(3)
    expect(await words.claim({ wait_ms: 1 })).toEqual([])
  })

  test('ends with its client, and takes nothing from the others', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const sent = await claimByNetwork(server, words)
    await untilWaiting(server, 1)
    sent.destroy()
    await untilWaiting(server, 0)
    const waiting = words.claimOne({ wait_ms: LONG_MS })
    await untilWaiting(server, 1)
    await server.put('doc/1', 'v')
    expect(await waiting).toMatchObject({ key: 'doc/1', attempt: 1 })
  })

  test('hands back what its client did not wait for', { tags: ['long'] }, async () => {
    const server = await start()
    const words = await Observing.of(server)
    for (let i = 0; i < 20; i++) {
      const sent = await claimByNetwork(server, words)
      await untilWaiting(server, 1)
      const written = server.put('doc/1', `${i}`)
      sent.destroy()
      await written
      const claimed = await words.claimOne({ wait_ms: LONG_MS })
      expect(claimed.attempt).toBe(1)
      await words.acked(claimed)
      await untilWaiting(server, 0)
    }
  })
})

async function claimByNetwork(server: TestServer, { url }: Observing): Promise<ClientRequest> {
  const headers = { 'content-type': 'application/json' }
  const sent = request({
    port: await server.listen(),
    host: '127.0.0.1',
    method: 'POST',
    path: `${url}/claim`,
    headers,
  })
  sent.on('error', () => {}) // It is destroyed.
  sent.end(JSON.stringify({ worker: 'gone', wait_ms: LONG_MS }))
  return sent
}

describe('extend', () => {
  test('prolongs what is held, and names what is lost', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.txn({ ops: [put('doc/1'), put('doc/2')] })
    const claims = await words.claim({ limit: 2 })
    const [one, two] = claims.map(({ key, fence }) => ({ key, fence })) as [Claimed, Claimed]
    expect(okBody(await words.post('extend', { claims: [one, two] }))).toEqual({ lost: [] })
    await words.release([two])
    const strange = { key: 'doc/9', fence: 5 }
    const old = { ...one, fence: one.fence - 1 }
    const answer = okBody(await words.post('extend', { claims: [one, two, strange, old], lease_ms: 100 }))
    expect(answer).toEqual({ lost: [two, strange, old] })
  })

  test.each<[Json, string]>([
    [{}, 'claims'],
    [{ claims: [{ key: 'doc/1' }] }, 'claims[0].fence'],
    [{ claims: [{ key: '', fence: 1 }] }, 'claims[0].key'],
    [{ claims: [{ key: 'doc/1', fence: 1, error: 'e' }] }, 'claims[0].error'],
    [{ claims: [], lease_ms: 99 }, 'lease_ms'],
    [{ claims: [], lease_ms: 3_600_001 }, 'lease_ms'],
  ])('of %j is 400', async (body, field) => {
    const words = await Observing.of(await start())
    expectProblem(await words.post('extend', body), 'invalid_argument', { field })
  })
})

describe('release', () => {
  test('without an error makes the cell ready, as if it had not been claimed', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.put('doc/1', 'v')
    const claimed = await words.claimOne()
    expect(await words.release([claimed, { key: 'doc/9', fence: 1 }])).toEqual({ released: 1, parked: [] })
    expect(await words.release([claimed])).toEqual({ released: 0, parked: [] })
    expect(await words.claimOne()).toMatchObject({ key: 'doc/1', attempt: 1 })
  })

  test('with an error counts an attempt and delays the next one', async () => {
    const server = await start()
    const words = await Observing.of(server, { prefix: 'doc/', backoff_ms: LONG_MS })
    await server.put('doc/1', 'v')
    expect(await words.release([await words.claimOne()], { error: 'no' })).toEqual({ released: 1, parked: [] })
    expect(await words.state()).toMatchObject({ pending: 1, delayed: 1, claimed: 0 })
    expect(await words.claim()).toEqual([])
  })

  test('says itself when to try again', async () => {
    const server = await start()
    const words = await Observing.of(server, { prefix: 'doc/', backoff_ms: LONG_MS })
    await server.put('doc/1', 'v')
    await words.release([await words.claimOne()], { error: 'no', retry_after_ms: 1 })
    expect(await words.claim({ wait_ms: LONG_MS })).toMatchObject([{ key: 'doc/1', attempt: 2 }])
  })

  test('parks a cell at its last attempt, with its error up to 1 KiB', async () => {
    const server = await start()
    const words = await Observing.of(server, { prefix: 'doc/', max_attempts: 2, backoff_ms: 0 })
    await server.put('doc/1', 'v')
    await words.release([await words.claimOne()], { error: 'first' })
    const second = (await words.claim({ wait_ms: LONG_MS }))[0] as Claimed
    const error = `${'x'.repeat(1022)}€${'x'.repeat(100_000)}`
    expect(await words.release([second], { error })).toEqual({ released: 1, parked: ['doc/1'] })
    const { parked } = okBody(await words.send('GET', '/parked'))
    expect(parked).toMatchObject([{ key: 'doc/1', attempts: 2, error: 'x'.repeat(1022) }])
  })

  test.each<[Json, string]>([
    [{}, 'claims'],
    [{ claims: [{ key: 'doc/1', fence: 1, error: 5 }] }, 'claims[0].error'],
    [{ claims: [{ key: 'doc/1', fence: 1, retry_after_ms: -1 }] }, 'claims[0].retry_after_ms'],
    [{ claims: [{ key: 'doc/1', fence: 1, retry_after_ms: 86_400_001 }] }, 'claims[0].retry_after_ms'],
  ])('of %j is 400', async (body, field) => {
    const words = await Observing.of(await start())
    expectProblem(await words.post('release', body), 'invalid_argument', { field })
  })
})

test('extend and release are served when other requests are shed', { tags: ['long'] }, async () => {
  const server = await start({ limits: { requestsMax: 1 } })
  const words = await Observing.of(server)
  await server.put('doc/1', 'v')
  const claimed = await words.claimOne()
  const { ts } = await server.ok('tso', {})
  await server.lock(numberOf({ ts }, 'ts'), ['locked'], { lock_ttl: LONG_MS })
  const { ts: later } = await server.ok('tso', {})
  // It is in flight for as long as it waits for the lock.
  const path = `/v1/kv/locked?ts=${later}&lock_wait_ms=${LONG_MS}`
  const busy = request({ port: await server.listen(), host: '127.0.0.1', path }).on('error', () => {})
  busy.end()
  await vi.waitFor(async () => expectProblem(await words.post('claim', { worker: 'w' }), 'overloaded'), 2000)
  const claims = [{ key: claimed.key, fence: claimed.fence }]
  expect(okBody(await words.post('extend', { claims }))).toEqual({ lost: [] })
  expect(await words.release([claimed])).toEqual({ released: 1, parked: [] })
  busy.destroy()
})
