import { expect, test, vi } from 'vitest'
import { NDJSON, Stream } from './streaming.js'
import { expectProblem, type Json, listOf, numberOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()

const URL = '/v1/consumers/copy/changes'
const SSE = { accept: 'text/event-stream' }

/** With a consumer `copy` of `a/` and three changes above its position, the second of which is elsewhere. */
async function withConsumer(): Promise<{ server: TestServer; since: number; position: number; commits: number[] }> {
  const server = await start()
  const since = await server.beginFeed()
  await server.put('a/0', 'before')
  const { state } = await server.database.changes.consumers.put('copy', { range: { prefix: Buffer.from('a/') } })
  const commits = [await server.put('a/1', 'one'), await server.put('b', 'else'), await server.put('a/2', 'two')]
  await server.untilTold()
  return { server, since, position: state.position, commits }
}

const keysOf = (txns: readonly Json[]) => txns.flatMap((txn) => listOf(txn, 'changes').map(({ key }) => key))

test('a page begins at the position, unless the request tells where', async () => {
  const { server, since, position, commits } = await withConsumer()
  const body = okBody(await server.get(URL))
  expect(keysOf(listOf(body, 'txns'))).toEqual(['a/1', 'a/2'])
  const [first] = commits
  expect(keysOf(listOf(okBody(await server.get(`${URL}?since_ts=${first}`)), 'txns'))).toEqual(['a/2'])
  expect(keysOf(listOf(okBody(await server.get(URL, { 'last-event-id': `${first}` })), 'txns'))).toEqual(['a/2'])
  expect(keysOf(listOf(okBody(await server.get(`${URL}?since_ts=${since}`)), 'txns'))).toEqual(['a/0', 'a/1', 'a/2'])
  const { consumers } = server.database.changes
  expect((await consumers.get('copy')).position).toBeGreaterThanOrEqual(position)
  await consumers.ack('copy', numberOf(body, 'next_ts'))
  expect(listOf(okBody(await server.get(URL)), 'txns')).toEqual([])
})

test.each([SSE, NDJSON])('a stream of %j begins at the position, and goes on', async (headers) => {
  const { server } = await withConsumer()
  const stream = await Stream.open(server, URL, headers)
  const txns = [await stream.until('txn'), await stream.until('txn')]
  await server.put('a/3', 'three')
  txns.push(await stream.until('txn'))
  expect(keysOf(txns.map(({ data }) => data))).toEqual(['a/1', 'a/2', 'a/3'])
  stream.close()
  if (headers !== SSE) return
  const resumed = await Stream.open(server, `${URL}?wait_ms=0`, { ...SSE, 'last-event-id': `${txns[0]?.id}` })
  const rest = (await resumed.all()).filter(({ event }) => event === 'txn')
  expect(keysOf(rest.map(({ data }) => data))).toEqual(['a/2', 'a/3'])
})

test('a page waits for the first transaction of the range', async () => {
  const { server } = await withConsumer()
  const { next_ts: next } = okBody(await server.get(URL))
  const waiting = server.get(`${URL}?since_ts=${next}&wait_ms=60000`)
  const watches = async () => numberOf(okBody(await server.get('/v1/status')), 'watches')
  await vi.waitFor(async () => expect(await watches()).toBe(1), { interval: 5 })
  await server.put('b', 'else')
  await server.put('a/9', 'nine')
  expect(keysOf(listOf(okBody(await waiting), 'txns'))).toEqual(['a/9'])
})

test('one whose changes were collected begins again with a snapshot', async () => {
  const { server } = await withConsumer()
  await server.ok('gc', { safe_point: Number((await server.ok('tso', {}))['ts']) })
  const resync = `${URL}?keys_only=&snapshot=true`
  for (const headers of [{}, SSE, NDJSON]) {
    const answer = await server.get(`${URL}?keys_only`, headers)
    expectProblem(answer, 'ts_below_safe_point', { resync })
    expect(answer.headers['link']).toBe(`<${resync}>; rel="resync"`)
  }
  const stream = await Stream.open(server, `${resync}&wait_ms=0`)
  const events = await stream.all()
  expect(events.filter(({ event }) => event === 'pair').map(({ data }) => data['key'])).toEqual(['a/0', 'a/1', 'a/2'])
  const end = events.find(({ event }) => event === 'snapshot_end')
  await server.database.changes.consumers.reset('copy', numberOf((end as (typeof events)[0]).data, 'ts'))
  expect(listOf(okBody(await server.get(URL)), 'txns')).toEqual([])
})

test('the range is that of the consumer', async () => {
  const { server } = await withConsumer()
  for (const query of ['prefix=b', 'key=b', 'start=b', 'end=b', 'consumer=x'])
    expectProblem(await server.get(`${URL}?${query}`), 'invalid_argument', { field: query.split('=')[0] as string })
})

test('an unknown consumer, and one that the token does not reach as a whole, is 404', async () => {
  const APP = 'app-token-0123456789'
  const server = await start({ tokens: `ro ${APP} prefix=app/\n` })
  const { consumers } = server.database.changes
  await consumers.put('within', { range: { prefix: Buffer.from('app/x') } })
  await consumers.put('beyond', { range: { prefix: Buffer.from('ap') } })
  await consumers.put('all', { range: {} })
  const as = { authorization: `Bearer ${APP}` }
  for (const headers of [{}, SSE, NDJSON]) {
    expectProblem(await server.get('/v1/consumers/within/changes', headers), 'unauthorized')
    for (const name of ['beyond', 'all', 'none'])
      expectProblem(await server.get(`/v1/consumers/${name}/changes`, { ...headers, ...as }), 'not_found')
  }
  expectProblem(await server.get('/v1/consumers/a%20b/changes', as), 'invalid_argument', { field: 'name' })
  okBody(await server.get('/v1/consumers/within/changes', as))
})
