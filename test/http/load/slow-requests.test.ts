import { request } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import { createLog } from '../../../src/server/log.js'
import { TappedEngine } from '../../store/support.js'
import { Clock, type Json, numberOf, type StartOptions, sendTo, type TestServer, testServers } from '../support.js'

const start = testServers()

interface Slow {
  readonly server: TestServer
  readonly port: number
  /** The lines about slow requests so far. */
  readonly slow: Json[]
}

async function startSlow(slowMs: number, options: StartOptions = {}): Promise<Slow> {
  const slow: Json[] = []
  const log = createLog('warn', (line) => void slow.push(JSON.parse(line)))
  const server = await start({ log, slowMs, ...options })
  return { server, port: await server.listen(), slow }
}

const JSON_TYPE = { 'content-type': 'application/json' }

const lineOf = (lines: readonly Json[], method: string, route: string): Json | undefined =>
  lines.find((line) => line['method'] === method && line['route'] === route)

/** Holds each write for so long. */
const slowDisk = (ms: number): TappedEngine => {
  const tapped = new TappedEngine()
  tapped.onWrite = (_, land) => setTimeout(ms).then(land)
  return tapped
}

/** Timers may be early by a millisecond. */
const MS = 30
const AT_LEAST = MS - 2

// `?lock_wait_ms` takes a request out of the fast lane.
test.each(['', '?lock_wait_ms=1000'])(
  'a write waits for the disk, the next one of its key for its latch too %s',
  async (query) => {
    const tapped = slowDisk(0)
    const { now } = new Clock() // As time stands still, the oracle does not save its mark, which would be the write that waits.
    const { server, port, slow } = await startSlow(MS - 5, { openEngine: tapped.open, now })
    const inFlight = async () => (await server.get('/v1/status')).json()['overload'].requests
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_, land) => land()
      await vi.waitFor(async () => expect(await inFlight()).toBe(2))
      await setTimeout(MS)
      await land()
    }
    const put = () => sendTo({ port }, 'PUT', `/v1/kv/key${query}`, {}, 'value')
    await Promise.all([put(), put()])

    // Those for the status are slow too, where the machine is busy.
    const puts = slow.filter((line) => line['method'] === 'PUT')
    const [first = {}, second = {}] = puts.sort((a, b) => numberOf(a, 'latchMs') - numberOf(b, 'latchMs'))
    const facts = { level: 'warn', route: '/v1/kv/:key', status: 200, lockMs: 0 }
    expect(puts).toMatchObject([facts, facts])
    expect(first['msg']).toBe(`slow request: PUT /v1/kv/:key took ${first['totalMs']} ms`)
    expect(numberOf(first, 'writeMs')).toBeGreaterThanOrEqual(AT_LEAST)
    expect(numberOf(second, 'latchMs')).toBeGreaterThanOrEqual(AT_LEAST)
    for (const line of puts)
      expect(numberOf(line, 'totalMs')).toBeGreaterThanOrEqual(
        numberOf(line, 'writeMs') + numberOf(line, 'latchMs') - 2,
      )
  },
)

test.each([
  ['GET', '/v1/kv/key', undefined, 404],
  ['POST', '/v1/txn', '{"ops":[{"op":"put","key":"key","value":"value"}]}', 200],
  ['GET', '/v1/kv?prefix=k&lock_wait_ms=60000', undefined, 200],
  ['PUT', '/v1/kv/key?lock_wait_ms=60000', 'value', 200],
] as const)('%s %s waits for a lock', async (method, url, body, status) => {
  const { server, port, slow } = await startSlow(1e-9)
  const start_ts = numberOf(await server.ok('tso', {}), 'ts')
  const keys = ['first', 'key']
  const mutations = keys.map((key) => ({ op: 'put', key, value: 'locked' }))
  await server.ok('prewrite', { start_ts, primary: 'first', lock_ttl: 60_000, mutations })
  slow.length = 0
  const asked = vi.spyOn(server.store, 'checkTxnStatus')
  const answered = sendTo({ port }, method, url, JSON_TYPE, body)
  // Who asks has met the lock. On a busy machine the request may come long after it was sent.
  await vi.waitFor(() => expect(asked).toHaveBeenCalled())
  await setTimeout(MS)
  await server.ok('rollback', { start_ts, keys })
  expect((await answered).status).toBe(status)

  const line = lineOf(slow, method, '/v1/kv') ?? lineOf(slow, method, '/v1/kv/:key') ?? lineOf(slow, method, '/v1/txn')
  expect(line).toMatchObject({ status })
  expect(numberOf(line ?? {}, 'lockMs')).toBeGreaterThan(0)
})

test('a pessimistic lock is waited for in its queue', async () => {
  const { server, port, slow } = await startSlow(MS - 5)
  const lock = async () => {
    const start_ts = numberOf(await server.ok('tso', {}), 'ts')
    const times = { start_ts, for_update_ts: start_ts, lock_ttl: 60_000, wait_timeout: 60_000 }
    const asked = JSON.stringify({ keys: ['key'], primary: 'key', ...times })
    return { start_ts, answered: sendTo({ port }, 'POST', '/v1/percolator/acquire_pessimistic_lock', JSON_TYPE, asked) }
  }
  const { start_ts, answered } = await lock()
  await answered
  slow.length = 0
  const second = await lock()
  await vi.waitFor(() => expect(server.store.figures.waiting).toBe(1))
  await setTimeout(MS)
  await server.ok('rollback', { start_ts, keys: ['key'] })
  await second.answered
  const line = lineOf(slow, 'POST', '/v1/percolator/acquire_pessimistic_lock') ?? {}
  expect(line).toMatchObject({ status: 200 })
  expect(numberOf(line, 'lockMs')).toBeGreaterThanOrEqual(AT_LEAST)
})

test('a call of the protocol and a commit say where their time went', async () => {
  const tapped = slowDisk(0)
  const { server, port, slow } = await startSlow(MS - 5, { openEngine: tapped.open })
  const begun = await sendTo({ port }, 'POST', '/v1/txn/begin', JSON_TYPE, '{}')
  const txn = `/v1/txn/${JSON.parse(begun.body).txn}`
  await sendTo({ port }, 'PUT', `${txn}/kv/a`, {}, 'value')
  const start_ts = numberOf(await server.ok('tso', {}), 'ts')
  tapped.onWrite = slowDisk(MS).onWrite
  await sendTo({ port }, 'POST', `${txn}/commit`, {})
  const prewrite = { start_ts, primary: 'key', mutations: [{ op: 'put', key: 'key', value: 'value' }] }
  await sendTo({ port }, 'POST', '/v1/percolator/prewrite', JSON_TYPE, JSON.stringify(prewrite))

  for (const route of ['/v1/txn/:txn/commit', '/v1/percolator/prewrite'])
    expect(numberOf(lineOf(slow, 'POST', route) ?? {}, 'writeMs'), route).toBeGreaterThanOrEqual(AT_LEAST)
})

test('neither a quick request nor one that asks to wait is a slow one; 0 logs none', async () => {
  const { port, slow } = await startSlow(60_000)
  await sendTo({ port }, 'PUT', '/v1/kv/key', {}, 'value')
  expect(slow).toEqual([])

  const waiting = await startSlow(1e-9)
  await sendTo(waiting, 'GET', `/v1/kv/key?wait_ms=${MS}`)
  expect(waiting.slow).toEqual([])

  const none = await startSlow(0)
  await sendTo(none, 'PUT', '/v1/kv/key', {}, 'value')
  expect(none.slow).toEqual([])
})

test('the time in which a body arrives is its client’s', async () => {
  const { server, port, slow } = await startSlow(1e-9)
  const headers = { ...JSON_TYPE, 'content-length': 14 }
  const beganMs = performance.now()
  await new Promise<void>((resolve, reject) => {
    const sent = request({ port, method: 'POST', path: '/v1/kv/batch_get', headers }, (answer) => {
      answer.resume().on('end', resolve)
    })
    sent.on('error', reject).write('{"keys":')
    server.app.server.once('request', () => void setTimeout(2 * MS).then(() => sent.end('["k"]}')))
  })
  const takenMs = performance.now() - beganMs

  const [line = {}] = slow
  expect(line).toMatchObject({ route: '/v1/kv/batch_get', status: 200 })
  expect(numberOf(line, 'receiveMs')).toBeGreaterThanOrEqual(MS)
  expect(numberOf(line, 'receiveMs') + numberOf(line, 'totalMs')).toBeLessThanOrEqual(takenMs + 2)
})

test('many slow requests make few lines, and the others are counted', async () => {
  const { server, port, slow } = await startSlow(1e-9)
  for (let i = 0; i < 50; i++) await sendTo({ port }, 'GET', '/v1/kv/key')
  expect(slow).toHaveLength(20)
  await server.app.close()
  expect(slow.slice(20)).toMatchObject([{ omitted: 30, msg: '30 more slow requests, without lines of their own' }])
})
