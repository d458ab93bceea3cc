import { rm } from 'node:fs/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { routesOf } from '../../src/http/routes/route-list.js'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { costOf } from './cpu-time.js'
import { bodiesOf, type Hostile, hostileOf, OBSERVER } from './hostile-requests.js'
import { type Json, startServer, type TestServer } from './support.js'

/**
 * Every route that the server has, with requests that are made to cost much: what one of them takes of the event loop at once,
 * and how that grows with its size. A longer run, from a seed:
 *
 *   CI=1 PERKV_TEST_RUNS=2000 PERKV_TEST_SEED=1 npx vitest run test/http/turn-lengths.test.ts --test-timeout=7200000
 */
const RUNS = process.env['PERKV_TEST_RUNS']
const SEED = process.env['PERKV_TEST_SEED']
const PARAMETERS = {
  ...(SEED !== undefined && { seed: Number(SEED) }),
  ...(RUNS === undefined
    ? { numRuns: 2000, interruptAfterTimeLimit: 5000, markInterruptAsFailure: false }
    : { numRuns: Number(RUNS) }),
}
/** Several times what the longest turns of such sizes take: what is found here is of another order. */
const TURN_MS_MAX = 200
/** Longer than what JSON.parse does at once. */
const SIZE = 300_000
const GROWTH = 4
/** Of what costs more than this. A square grows by 16. */
const GROWTH_FROM_MS = 100
const GROWTH_MAX = 9

let server: TestServer
beforeAll(async () => {
  server = await startServer()
  await observe()
  await server.txn({ ops: Array.from({ length: 500 }, (_, i) => ({ op: 'put', key: `k${i}`, value: '1' })) })
})
afterAll(async () => {
  await server.app.close()
  await server.database.close()
  await rm(server.directory, { recursive: true })
})

/** Every change marks a cell. */
async function observe(): Promise<void> {
  await server.database.observers.put(OBSERVER, { range: { prefix: new Uint8Array() } })
}

async function removeLocks(): Promise<void> {
  const { locks } = await server.store.scanLock({ maxTs: TIMESTAMP_MAX })
  const startTs = new Set(locks.map((lock) => lock.startTs))
  await server.store.resolveLock({ txns: [...startTs].map((ts) => ({ startTs: ts, commitTs: 0 })) })
  const left = await server.store.scanLock({ maxTs: TIMESTAMP_MAX })
  for (const ts of startTs) {
    const keys = left.locks.filter((lock) => lock.startTs === ts).map(({ key }) => key)
    if (keys.length > 0) await server.store.pessimisticRollback({ keys, startTs: ts, forUpdateTs: TIMESTAMP_MAX - 1 })
  }
}

async function begin(): Promise<string> {
  const answer = await server.post('/v1/txn/begin', {})
  expect(answer.statusCode, answer.body).toBe(201)
  return String(answer.json<Json>()['txn'])
}

async function sendOf({ method, of, what }: Hostile, size: number) {
  const { url, headers, payload } = of(size)
  const txn = url.includes(':txn') ? await begin() : ''
  const target = url.replace(':txn', txn)
  const cost = await costOf(async () => {
    const { statusCode, body } = await server.send(method, target, headers, payload)
    expect(statusCode, `${method} ${url.slice(0, 60)}, ${what}: ${body.slice(0, 200)}`).toBeLessThan(500)
  })
  if (txn !== '') await server.post(`/v1/txn/${txn}/rollback`, {})
  await removeLocks()
  if (server.store.observed.named(OBSERVER) === undefined) await observe()
  return cost
}

/** Of each size, and what the larger one took at once. */
async function requireProportion(request: Hostile, what: string): Promise<number> {
  const small = await sendOf(request, SIZE)
  const large = await sendOf(request, GROWTH * SIZE)
  expect(large.turnMs, what).toBeLessThan(TURN_MS_MAX)
  if (large.totalMs > GROWTH_FROM_MS)
    expect(large.totalMs, `${what}: ${small.totalMs} ms for a quarter of it`).toBeLessThan(
      GROWTH_MAX * Math.max(small.totalMs, GROWTH_FROM_MS / GROWTH),
    )
  return large.turnMs
}

test.each(bodiesOf('POST', '/v1/txn'))('a body that costs no more than its bytes: $what', async (request) => {
  await requireProportion(request, request.what)
})

test('conditions that cost no more than their bytes', async () => {
  for (const unit of [' ', '\t', ', ', '"1",', 'W/"1" , '])
    for (const [head, tail] of [',x', '",', '""', ',,'])
      for (const header of ['if-match', 'if-none-match']) {
        const value = (head ?? '') + unit.repeat(28_000 / unit.length) + (tail ?? '')
        const of: Hostile['of'] = () => ({ url: '/v1/kv/a', headers: { [header]: value } })
        await requireProportion({ method: 'GET', what: value.slice(0, 10), of }, `${header}: ${value.slice(0, 10)}`)
      }
})

test('no request takes the event loop for long, and none costs more than in proportion to its size', async () => {
  const routes = routesOf(server.app).filter(({ method }) => method !== 'HEAD')
  expect(routes.length).toBeGreaterThan(30)
  let count = 0
  let longest = { turnMs: 0, what: '' }
  const hostile = fc
    .constantFrom(...routes)
    .chain((route) => hostileOf(route).map((one) => ({ ...one, route: route.url })))
  const property = fc.asyncProperty(hostile, async (request) => {
    count++
    const what = `${request.method} ${request.route}, ${request.what}`
    const turnMs = await requireProportion(request, what)
    if (turnMs > longest.turnMs) longest = { turnMs, what }
  })
  await fc.assert(property, PARAMETERS)
  if (RUNS !== undefined)
    process.stderr.write(`${count} requests; the longest turn: ${longest.turnMs.toFixed(0)} ms, ${longest.what}\n`)
})
