import { connect, type Socket } from 'node:net'
import { expect, test, vi } from 'vitest'
import { NDJSON, Stream } from './streaming.js'
import {
  expectProblem,
  type Headers,
  type Json,
  listOf,
  numberOf,
  okBody,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

const VALUE = 'v'.repeat(100_000)
const COUNT = 200

async function status(server: TestServer): Promise<Json> {
  return okBody(await server.get('/v1/status'))
}

const eventually = (check: () => Promise<void>) => vi.waitFor(check, { interval: 10 })

/** A connection that asks for a stream and reads nothing. */
async function unread(server: TestServer, query: string, accept: string): Promise<Socket> {
  const port = await server.listen()
  const socket = connect(port, '127.0.0.1')
  socket.pause()
  socket.on('error', () => {})
  socket.write(`GET /v1/changes?${query} HTTP/1.1\r\nHost: x\r\nAccept: ${accept}\r\n\r\n`)
  return socket
}

/** @returns timestamps of commits, with long values. */
async function writeMuch(server: TestServer): Promise<number[]> {
  const commits: number[] = []
  for (let i = 0; i < COUNT; i++) commits.push(await server.put(`k${i % 10}`, `${i} ${VALUE}`))
  return commits
}

test('streams that nobody reads hold a bounded part of what was written, and are cut off', async () => {
  const server = await start({ limits: { stalledMsMax: 300, feedBytesMax: 1_000_000 } })
  const before = await server.put('k', 'before')
  const queries = ['', 'prefix=k', `since_ts=${before}`, 'old_values', 'snapshot=true']
  const sockets: Socket[] = []
  for (const accept of ['text/event-stream', 'application/x-ndjson'])
    for (const query of queries) sockets.push(await unread(server, query, accept))
  await eventually(async () => expect(numberOf(await status(server), 'watches')).toBe(sockets.length))
  let held = 0
  for (let i = 0; i < COUNT; i++) {
    await server.put(`k${i % 10}`, `${i} ${VALUE}`)
    held = Math.max(held, server.store.answers.heldBytes)
  }
  expect(held).toBeLessThan(sockets.length * 2_500_000) // 20 MB were written.
  await eventually(async () => {
    expect(await status(server)).toMatchObject({ watches: 0, feed: { live: 0, behind: 0 } })
    expect(server.store.answers.heldBytes).toBe(0)
  })
  for (const socket of sockets) socket.destroy()
})

test('a stream that is read late misses nothing, and one that was cut off goes on at its last id', async () => {
  const server = await start({ limits: { feedBytesMax: 1_000_000 } })
  const late = await Stream.open(server, '/v1/changes')
  await late.expect('resolved')
  late.answer.pause()
  const commits = await writeMuch(server)
  const [half, last] = [commits[COUNT / 2] as number, commits.at(-1) as number]
  await eventually(async () => expect(await status(server)).toMatchObject({ feed: { live: 0, behind: 1 } }))
  late.answer.resume()
  const seen: number[] = []
  for (let ts = 0; ts < half; seen.push(ts)) ts = numberOf((await late.until('txn')).data, 'commit_ts')
  late.close()
  const headers = { accept: 'text/event-stream', 'last-event-id': `${half}` }
  const rest = await Stream.open(server, '/v1/changes?wait_ms=0', headers)
  for (let ts = 0; ts < last; seen.push(ts)) ts = numberOf((await rest.until('txn')).data, 'commit_ts')
  expect(seen).toEqual(commits)
})

test('collection does not pass what an open stream has not been sent, and nothing is left out', async () => {
  const server = await start({ limits: { feedBytesMax: 1_000_000 } })
  const slow = await Stream.open(server, '/v1/changes', NDJSON)
  await slow.expect('resolved')
  slow.answer.pause()
  const commits = await writeMuch(server)
  await eventually(async () => expect(await status(server)).toMatchObject({ feed: { live: 0, behind: 1 } }))
  const report = okBody(await server.post('/v1/admin/gc', { life_time_ms: 0 }))
  expect(report).toMatchObject({ held_back_by: 'feed' })
  expect(server.store.safePoint).toBeLessThan(commits.at(-1) as number)
  slow.answer.resume()
  const seen: number[] = []
  for (const _ of commits) seen.push(numberOf((await slow.until('txn')).data, 'commit_ts'))
  expect(seen).toEqual(commits)
  slow.close()
})

test('a stream that collection has passed all the same ends with an error, without a gap before', async () => {
  const server = await start({ limits: { feedBytesMax: 1_000_000 } })
  const slow = await Stream.open(server, '/v1/changes?prefix=k', NDJSON)
  await slow.expect('resolved')
  slow.answer.pause()
  const commits = await writeMuch(server)
  await eventually(async () => expect(await status(server)).toMatchObject({ feed: { live: 0, behind: 1 } }))
  const { ts } = await server.ok('tso', {})
  await server.ok('gc', { safe_point: ts }) // It asks nobody.
  slow.answer.resume()
  const events = await slow.all()
  const seen = events.filter(({ event }) => event === 'txn').map(({ data }) => data['commit_ts'])
  expect(seen).toEqual(commits.slice(0, seen.length))
  expect(seen.length).toBeLessThan(commits.length)
  const end = events.at(-1) as (typeof events)[0]
  expect(end).toMatchObject({ event: 'error', data: { code: 'ts_below_safe_point', status: 410 } })
  const resync = await Stream.open(server, String(end.data['resync']))
  for (let i = 0; i < 10; i++) await resync.expect('pair')
  await resync.expect('snapshot_end')
  resync.close()
})

test('locks that hold resolved_ts back are named in the status, which takes none itself', async () => {
  const server = await start()
  const { ts: start_ts } = await server.ok('tso', {})
  const mutations = [{ op: 'put', key: 'held', value: 'v' }]
  await server.ok('prewrite', { start_ts, primary: 'held', lock_ttl: 60_000, mutations })
  const idle = (await status(server))['feed']
  expect(idle).toMatchObject({ resolved_ts: 0, live: 0, behind: 0 })
  const stream = await Stream.open(server, '/v1/changes')
  await stream.expect('resolved')
  const later = await server.put('k', 'v')
  await eventually(async () => {
    const { feed } = await status(server)
    expect(feed).toMatchObject({ live: 1 })
    expect(listOf(feed as Json, 'held_back_by')).toMatchObject([{ key: 'held', start_ts }])
    expect(numberOf(feed as Json, 'lag_ms')).toBeGreaterThan(0)
  })
  const { ts: commit_ts } = await server.ok('tso', {})
  await server.ok('commit', { keys: ['held'], start_ts, commit_ts })
  const txns = [await stream.until('txn'), await stream.until('txn')]
  expect(txns.map(({ data }) => data['commit_ts'])).toEqual([later, commit_ts])
  stream.close()
})

test('looking at the status and watching keys forbid no commit in the past', async () => {
  const server = await start()
  const mutations = [{ op: 'put', key: 'k', value: 'v' }]
  await server.ok('prewrite', { start_ts: 5, primary: 'k', lock_ttl: 60_000, mutations })
  const watch = await Stream.open(server, '/v1/kv/else')
  await watch.expect('absent')
  await status(server)
  const poll = server.get('/v1/kv/k2?wait_ms=60000')
  await eventually(async () => expect(numberOf(await status(server), 'watches')).toBe(2))
  await server.ok('commit', { keys: ['k'], start_ts: 5, commit_ts: 6 })
  await server.put('k2', 'v')
  expect((await poll).statusCode).toBe(200)
  const again = [{ op: 'put', key: 'j', value: 'v' }]
  await server.ok('prewrite', { start_ts: 7, primary: 'j', lock_ttl: 60_000, mutations: again })
  await server.ok('commit', { keys: ['j'], start_ts: 7, commit_ts: 8 })
  watch.close()
})

/** @returns the status, when all of the answer is there. */
async function answered(server: TestServer, url: string, headers: Headers): Promise<number> {
  if (headers['accept'] !== 'text/event-stream') return (await server.get(url, headers)).statusCode
  const stream = await Stream.open(server, url, headers)
  await stream.all()
  return stream.status
}

test('a query of any form is answered, or refused with 400, 410 or 413', async () => {
  const server = await start()
  await server.put('k', 'v')
  let seed = 1
  const random = (count: number): number => {
    seed = (seed * 48_271) % 2_147_483_647
    return seed % count
  }
  const pick = (of: readonly string[]): string => of[random(of.length)] as string
  const names = 'prefix key start end since_ts since_at snapshot keys_only old_values limit wait_ms heartbeat_ms x'
  const values = [
    '',
    '0',
    '1',
    '-1',
    '100',
    '1e9',
    '9007199254740991',
    '99999999999999999999',
    'true',
    'false',
    'k',
    '%00',
  ]
  values.push(
    '%FF%FE',
    '%',
    '%zz',
    '+',
    'a'.repeat(5000),
    '2026-01-01T00:00:00Z',
    '9999-12-31T23:59:59Z',
    '[]',
    '&',
    '=',
  )
  const ids = [
    '',
    '0',
    '5',
    's.5.YQ',
    's.5.',
    's..YQ',
    's.0.YQ',
    's.9007199254740993.YQ',
    'x',
    '9'.repeat(30),
    `s.5.${'Y'.repeat(9000)}`,
  ]
  const counts = new Map<number, number>()
  for (let i = 0; i < 300; i++) {
    const given = Array.from({ length: random(4) }, () => `${pick(names.split(' '))}=${pick(values)}`)
    const accept = pick(['application/json', 'application/x-ndjson', 'text/event-stream', '*/*'])
    const query = [...given, ...(accept.includes('json') ? [] : ['wait_ms=0'])].join('&')
    const headers = { accept, ...(random(4) === 0 ? { 'last-event-id': pick(ids) } : {}) }
    const url = `/v1/changes?${query.includes('wait_ms') ? query : `${query}&wait_ms=0`}`
    const status = await answered(server, url, headers)
    counts.set(status, (counts.get(status) ?? 0) + 1)
    expect([200, 400, 410, 413], url).toContain(status)
  }
  expect(counts.get(200)).toBeGreaterThan(20)
  expect(counts.get(400)).toBeGreaterThan(100)
  expectProblem(await server.get('/v1/changes?since_at=9999-12-31T23:59:59Z'), 'invalid_argument')
  await eventually(async () => expect(await status(server)).toMatchObject({ watches: 0, feed: { live: 0, behind: 0 } }))
})
