import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, test, vi } from 'vitest'
import { Grant } from '../../src/access/grant.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import { openMemoryStore } from '../../src/store/leveldb/leveldb-store.js'
import { type Event, NDJSON, Stream } from './streaming.js'
import {
  expectProblem,
  type Headers,
  type Json,
  listOf,
  numberOf,
  okBody,
  pack,
  serve,
  type TestServer,
  testServers,
  unpack,
} from './support.js'

const start = testServers()

const LONG_MS = 60_000
const SSE = { accept: 'text/event-stream' }
const put = (key: string, value = 'v'): Json => ({ op: 'put', key, value })

async function page(server: TestServer, query: string): Promise<Json> {
  await server.untilTold()
  return okBody(await server.get(`/v1/changes?${query}`))
}

/** What a page shows: key and value of each change. */
function shownIn(body: Json): unknown[] {
  return listOf(body, 'txns').flatMap((txn) => listOf(txn, 'changes').map(({ key, op, value }) => [key, value ?? op]))
}

async function watches(server: TestServer, headers: Headers = {}): Promise<number> {
  return numberOf(okBody(await server.get('/v1/status', headers)), 'watches')
}

async function untilWaiting(server: TestServer, count: number, headers: Headers = {}): Promise<void> {
  await vi.waitFor(async () => expect(await watches(server, headers)).toBe(count), { interval: 5 })
}

describe('a page', () => {
  test('has whole transactions, in order, and goes on at next_ts', async () => {
    const server = await start()
    const since = await server.beginFeed()
    const first = await server.put('b', 'one')
    const { commit_ts: second } = await server.txn({ ops: [put('c', '2'), put('a', '2')] })
    const third = await server.remove('b')
    const body = await page(server, `since_ts=${since}`)
    expect(listOf(body, 'txns')).toMatchObject([
      { commit_ts: first, changes: [{ key: 'b', op: 'put', value: 'one' }] },
      {
        commit_ts: second,
        changes: [
          { key: 'a', op: 'put', value: '2' },
          { key: 'c', op: 'put', value: '2' },
        ],
      },
      { commit_ts: third, changes: [{ key: 'b', op: 'delete' }] },
    ])
    expect(numberOf(body, 'resolved_ts')).toBeGreaterThanOrEqual(third)
    const seen: unknown[] = []
    let next = since
    for (let i = 0; i < 3; i++) {
      const part = await page(server, `since_ts=${next}&limit=1`)
      expect(listOf(part, 'txns')).toHaveLength(1)
      expect(numberOf(part, 'next_ts')).toBeGreaterThan(next)
      next = numberOf(part, 'next_ts')
      seen.push(...listOf(part, 'txns'))
    }
    expect(seen).toEqual(listOf(body, 'txns'))
    expect(listOf(await page(server, `since_ts=${next}`), 'txns')).toEqual([])
  })

  test('begins now unless told otherwise, and shows what was acknowledged before it was asked for', async () => {
    const server = await start()
    await server.put('a', '1')
    const body = await page(server, '')
    expect(listOf(body, 'txns')).toEqual([])
    await server.put('a', '2')
    expect(shownIn(await page(server, `since_ts=${body['next_ts']}`))).toEqual([['a', '2']])
  })

  test('is of prefixes and keys, or of a range', async () => {
    const server = await start()
    const since = await server.beginFeed()
    for (const key of ['a/1', 'a/2', 'b', 'c d', 'é', 'z']) await server.put(key, key)
    const keysOf = async (query: string) =>
      shownIn(await page(server, `since_ts=${since}&${query}`)).map((one) => (one as unknown[])[0])
    expect(await keysOf('prefix=a/')).toEqual(['a/1', 'a/2'])
    expect(await keysOf('prefix=a/&prefix=z&key=b&key=b&key=c+d&key=%C3%A9')).toEqual([
      'a/1',
      'a/2',
      'b',
      'c d',
      'é',
      'z',
    ])
    expect(await keysOf('key=a/2')).toEqual(['a/2'])
    expect(await keysOf('key=a')).toEqual([])
    expect(await keysOf('start=a/2&end=c')).toEqual(['a/2', 'b'])
    expect(await keysOf('start=c')).toEqual(['c d', 'é', 'z'])
    expect(await keysOf('end=b&start=')).toEqual(['a/1', 'a/2'])
    expect(await keysOf('prefix=')).toHaveLength(6)
  })

  test('leaves values out, or adds those before', async () => {
    const server = await start()
    const since = await server.beginFeed()
    const first = await server.put('k', 'one')
    await server.put('k', 'two')
    await server.remove('k')
    const [one, two, three] = listOf(await page(server, `since_ts=${since}&keys_only`), 'txns')
    expect([one, two, three].map((txn) => listOf(txn as Json, 'changes')[0])).toEqual([
      { key: 'k', op: 'put' },
      { key: 'k', op: 'put' },
      { key: 'k', op: 'delete' },
    ])
    const old = listOf(await page(server, `since_ts=${since}&old_values=true`), 'txns').map(
      (txn) => listOf(txn, 'changes')[0],
    )
    expect(old).toMatchObject([
      { old: null, value: 'one' },
      { old: { value: 'one', commit_ts: first }, value: 'two' },
      { old: { value: 'two' }, op: 'delete' },
    ])
  })

  test('waits for the first transaction', async () => {
    const server = await start({ limits: { requestsMax: 2 } })
    const since = await server.beginFeed()
    const waiting = server.get(`/v1/changes?since_ts=${since}&wait_ms=${LONG_MS}&prefix=a/`)
    await untilWaiting(server, 1)
    expect((okBody(await server.get('/v1/status'))['overload'] as Json)['requests']).toBe(0)
    await server.put('b', '1')
    await server.put('a/1', '1')
    expect(shownIn(okBody(await waiting))).toEqual([['a/1', '1']])
    const nothing = await page(server, 'wait_ms=1')
    expect(listOf(nothing, 'txns')).toEqual([])
    expect(await watches(server)).toBe(0)
  })

  test('that waits is empty when the server closes, and ends with its client', { tags: ['long'] }, async () => {
    const server = await start()
    const port = await server.listen()
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(`GET /v1/changes?wait_ms=${LONG_MS} HTTP/1.1\r\nHost: x\r\n\r\n`),
    )
    await untilWaiting(server, 1)
    socket.destroy()
    await untilWaiting(server, 0)
    const waiting = server.get(`/v1/changes?wait_ms=${LONG_MS}`)
    await untilWaiting(server, 1)
    await server.app.close()
    const answer = await waiting
    expect(listOf(okBody(answer), 'txns')).toEqual([])
    expect(answer.headers['connection']).toBe('close')
  })

  test('comes as MessagePack too', async () => {
    const server = await start()
    const since = await server.beginFeed()
    const commitTs = await server.put('k', Buffer.from([0xff]))
    await server.untilTold()
    const answer = await server.get(`/v1/changes?since_ts=${since}`, { accept: 'application/msgpack' })
    expect(answer.headers['content-type']).toBe('application/msgpack')
    const { txns } = unpack(answer.rawPayload) as { txns: Json[] }
    expect(txns).toMatchObject([{ commit_ts: commitTs, changes: [{ op: 'put', value: Buffer.from([0xff]) }] }])
    expect(pack(txns).length).toBeLessThan(answer.rawPayload.length)
  })

  test('goes on at Last-Event-ID, which wins', async () => {
    const server = await start()
    const since = await server.beginFeed()
    const first = await server.put('k', '1')
    await server.put('k', '2')
    await server.untilTold()
    const answer = await server.get(`/v1/changes?since_ts=${since}`, { 'last-event-id': `${first}` })
    expect(shownIn(okBody(answer))).toEqual([['k', '2']])
  })

  test('of HEAD is its head alone', async () => {
    const server = await start()
    const since = await server.beginFeed()
    await server.put('k', '1')
    const answer = await server.send('HEAD', `/v1/changes?since_ts=${since}`)
    expect([answer.statusCode, answer.body, answer.headers['content-type']]).toEqual([
      200,
      '',
      'application/json; charset=utf-8',
    ])
  })
})

describe('a stream', () => {
  test.each([
    ['events', SSE, 'text/event-stream'],
    ['lines', NDJSON, 'application/x-ndjson; charset=utf-8'],
  ])(
    'of %s has a head of its own, resolved at once, and then each transaction',
    { tags: ['long'] },
    async (_name, headers, type) => {
      const server = await start()
      const stream = await Stream.open(server, '/v1/changes?prefix=a/', headers)
      expect(stream.status).toBe(200)
      expect(stream.headers).toMatchObject({
        'content-type': type,
        'cache-control': 'no-store',
        'x-accel-buffering': 'no',
        'x-content-type-options': 'nosniff',
      })
      expect(stream.headers['content-encoding']).toBeUndefined()
      const { data } = await stream.expect('resolved')
      await server.put('b', 'else')
      const { commit_ts } = await server.txn({ ops: [put('a/2', 'x'), put('b'), put('a/1', 'é')] })
      const { data: txn, id } = await stream.until('txn')
      expect(txn).toMatchObject({
        commit_ts,
        changes: [
          { key: 'a/1', op: 'put', value: 'é' },
          { key: 'a/2', op: 'put', value: 'x' },
        ],
      })
      const resolved = await stream.until('resolved')
      expect(numberOf(resolved.data, 'resolved_ts')).toBeGreaterThanOrEqual(Number(commit_ts))
      expect(numberOf(resolved.data, 'resolved_ts')).toBeGreaterThan(numberOf(data, 'resolved_ts'))
      if (headers === SSE) expect([stream.retry, id]).toEqual(['1000', `${commit_ts}`])
      expect(okBody(await server.get('/v1/status'))).toMatchObject({ watches: 1, feed: { live: 1, behind: 0 } })
      stream.close()
      await untilWaiting(server, 0)
      const left = async () => okBody(await server.get('/v1/status'))['feed']
      await vi.waitFor(async () => expect(await left()).toMatchObject({ live: 0, behind: 0, resolved_ts: 0 }), {
        interval: 5,
      })
    },
  )

  test('is told resolved_ts as often as it asks for', async () => {
    const server = await start()
    const stream = await Stream.open(server, '/v1/changes?heartbeat_ms=100')
    let last = 0
    for (let i = 0; i < 4; i++) {
      const { data, id } = await stream.expect('resolved')
      expect(numberOf(data, 'resolved_ts')).toBeGreaterThanOrEqual(last)
      last = numberOf(data, 'resolved_ts')
      expect(id).toBe(`${last}`)
    }
    expect(last).toBeGreaterThan(0)
    stream.close()
  })

  test('of lines ends as soon as it has caught up, with wait_ms=0', { tags: ['long'] }, async () => {
    const server = await start()
    const since = await server.beginFeed()
    for (let i = 0; i < 300; i++) await server.put(`k${i % 7}`, `${i}`)
    await server.untilTold()
    const stream = await Stream.open(server, `/v1/changes?since_ts=${since}&wait_ms=0`, NDJSON)
    const events = await stream.all()
    expect(stream.answer.complete).toBe(true)
    expect(events.filter(({ event }) => event === 'txn')).toHaveLength(300)
    expect(events.at(-1)?.event).toBe('resolved')
  })

  test('resumes at every id without a gap and without a repetition', { tags: ['long'] }, async () => {
    const server = await start()
    const since = await server.beginFeed()
    for (let i = 0; i < 20; i++) await server.txn({ ops: [put(`k${i % 3}`, `${i}`), put(`l${i}`)] })
    await server.untilTold()
    const whole = await Stream.open(server, `/v1/changes?since_ts=${since}&wait_ms=0`)
    const events = (await whole.all()).filter(({ event }) => event === 'txn')
    expect(events).toHaveLength(20)
    for (const [i, { id }] of events.entries()) {
      const headers = { ...SSE, 'last-event-id': id as string }
      const rest = await Stream.open(server, `/v1/changes?since_ts=${since}&wait_ms=0`, headers)
      expect((await rest.all()).filter(({ event }) => event === 'txn')).toEqual(events.slice(i + 1))
    }
  })

  test('ends each group of one commit_ts with its id alone', async () => {
    const server = await start()
    const since = await server.beginFeed()
    const { ts: start_ts } = await server.ok('tso', {})
    const { ts: other } = await server.ok('tso', {})
    await server.lock(Number(start_ts), ['a'])
    await server.lock(Number(other), ['b'])
    const { ts: commit_ts } = await server.ok('tso', {})
    await server.ok('commit', { keys: ['a'], start_ts, commit_ts })
    await server.ok('commit', { keys: ['b'], start_ts: other, commit_ts })
    await server.untilTold()
    const stream = await Stream.open(server, `/v1/changes?since_ts=${since}&wait_ms=0`)
    const txns = (await stream.all()).filter(({ event }) => event === 'txn')
    expect(txns.map(({ id, data }) => [id, data['start_ts']])).toEqual([
      [undefined, start_ts],
      [`${commit_ts}`, other],
    ])
  })

  test('is in parts where a transaction is long, and only the last one has an id', async () => {
    const server = await start({ limits: { pageBytesMax: 10_000 } })
    const since = await server.beginFeed()
    const ops = Array.from({ length: 30 }, (_, i) => put(`k${String(i).padStart(2, '0')}`, 'v'.repeat(1000)))
    const { commit_ts } = await server.txn({ ops })
    await server.untilTold()
    for (const query of ['wait_ms=0', 'wait_ms=0&keys_only']) {
      const stream = await Stream.open(server, `/v1/changes?since_ts=${since}&${query}`)
      const parts = (await stream.all()).filter(({ event }) => event === 'txn')
      expect(parts.flatMap(({ data }) => listOf(data, 'changes').map(({ key }) => key))).toEqual(
        ops.map(({ key }) => key),
      )
      if (parts.length === 1) continue
      expect(parts.map(({ data }) => data['part'])).toEqual(parts.map((_, i) => i))
      expect(parts.map(({ data }) => data['is_last'] === true)).toEqual(parts.map((_, i) => i === parts.length - 1))
      expect(parts.map(({ id }) => id)).toEqual([...parts.slice(1).map(() => undefined), `${commit_ts}`])
    }
  })

  test.each(['/v1/changes', '/v1/consumers/c/changes'])(
    'passes a transaction that is longer than an answer may be, in parts: %s',
    async (path) => {
      const server = await start({ limits: { pageBytesMax: 10_000, answerBytesMax: 20_000 } })
      const since = await server.beginFeed()
      const json = { 'content-type': 'application/json' }
      await server.send('PUT', '/v1/consumers/c', json, `{"since_ts":${since}}`)
      const ops = Array.from({ length: 30 }, (_, i) => put(`k${String(i).padStart(2, '0')}`, 'v'.repeat(1000)))
      const { commit_ts } = await server.txn({ ops })
      const after = await server.put('z', 'v')
      await server.untilTold()
      const url = `${path}?since_ts=${since}&limit=1`
      const page = okBody(await server.get(url))
      const txns = listOf(page, 'txns')
      expect(txns.map(({ part, is_last }) => [part, is_last])).toEqual(txns.map((_, i) => [i, i === txns.length - 1]))
      expect(txns.flatMap((txn) => listOf(txn, 'changes').map(({ key }) => key))).toEqual(ops.map(({ key }) => key))
      expect(page).toMatchObject({ next_ts: commit_ts })
      expect(Number(page['resolved_ts'])).toBeGreaterThanOrEqual(after)
      const packed = await server.get(url, { accept: 'application/msgpack' })
      expect(packed.headers['content-type']).toBe('application/msgpack')
      const unpacked = unpack(packed.rawPayload) as Json
      expect(unpacked).toMatchObject({ next_ts: commit_ts })
      expect(listOf(unpacked, 'txns').map(({ part }) => part)).toEqual(txns.map(({ part }) => part))
      expect((await server.send('HEAD', url)).statusCode).toBe(200)
      expect(okBody(await server.get(`${path}?since_ts=${commit_ts}`))).toMatchObject({ txns: [{ commit_ts: after }] })
      await vi.waitFor(async () =>
        expect(okBody(await server.get('/v1/status'))['overload']).toMatchObject({ answer_bytes: 0, streams: 0 }),
      )
    },
  )

  test('of a long value comes whole, to several streams at once', async () => {
    const server = await start()
    const urls = ['/v1/changes', '/v1/changes?prefix=k', '/v1/changes?key=k']
    const streams = await Promise.all(
      [...urls, ...urls].map((url, i) => Stream.open(server, url, i < 3 ? SSE : NDJSON)),
    )
    const value = 'ä\n"\\'.repeat(150_000)
    await server.put('k', value)
    for (const stream of streams) {
      const { data } = await stream.until('txn')
      expect(listOf(data, 'changes')[0]?.['value'] === value).toBe(true)
      stream.close()
    }
  })

  test('shows the part of a delete_range that is within it', async () => {
    const server = await start()
    const stream = await Stream.open(server, '/v1/changes?prefix=b&prefix=d')
    await server.ok('delete_range', { start: 'a', end: 'dd' })
    const { data } = await stream.until('txn')
    expect(data['start_ts']).toBe(data['commit_ts'])
    expect(listOf(data, 'changes')).toEqual([
      { key: 'b', op: 'delete_range', end: 'c' },
      { key: 'd', op: 'delete_range', end: 'dd' },
    ])
    stream.close()
  })

  test('ends with an error when the server closes', async () => {
    const server = await start()
    const streams = [await Stream.open(server, '/v1/changes'), await Stream.open(server, '/v1/changes', NDJSON)]
    for (const stream of streams) await stream.expect('resolved')
    await server.app.close()
    for (const stream of streams) {
      const { id, data } = await stream.until('error')
      expect(data).toMatchObject({ code: 'overloaded', status: 503 })
      expect([id, await stream.next(), stream.answer.complete]).toEqual([undefined, undefined, true])
    }
  })

  test('that came without a connection ends with an error too', async () => {
    const server = await start()
    const headers = { accept: 'application/x-ndjson' }
    const answer = await server.app.inject({ url: '/v1/changes', headers, payloadAsStream: true })
    const lines = text(answer.stream())
    await server.app.close()
    expect(await lines).toMatch(/"type":"error".*\n$/)
  })

  test('is no request in flight, and there are so many at most', async () => {
    const server = await start({ limits: { requestsMax: 2, watchesMax: 2 } })
    const streams = [await Stream.open(server, '/v1/changes'), await Stream.open(server, '/v1/changes')]
    expect((okBody(await server.get('/v1/status'))['overload'] as Json)['requests']).toBe(0)
    for (const accept of ['text/event-stream', 'application/x-ndjson'])
      expectProblem(await server.get('/v1/changes', { accept }), 'overloaded')
    expectProblem(await server.get('/v1/changes?wait_ms=5'), 'overloaded')
    expect((await server.get('/v1/changes')).statusCode).toBe(200)
    for (const stream of streams) stream.close()
    await untilWaiting(server, 0)
    const again = await Stream.open(server, '/v1/changes')
    again.close()
  })

  test('of HEAD is its head alone', async () => {
    const server = await start()
    for (const accept of ['text/event-stream', 'application/x-ndjson']) {
      const answer = await server.send('HEAD', '/v1/changes', { accept })
      expect([answer.statusCode, answer.body]).toEqual([200, ''])
    }
    expect(await watches(server)).toBe(0)
  })

  test('whose client hangs up, in whatever phase, leaves nothing behind', { tags: ['long'] }, async () => {
    const server = await start()
    for (let i = 0; i < 50; i++) await server.put(`k${i}`, 'v'.repeat(10_000))
    const port = await server.listen()
    for (const query of [
      'since_ts=0',
      'snapshot=true',
      'prefix=k',
      'wait_ms=60000&since_ts=0',
      'old_values&since_ts=0',
    ])
      for (const accept of ['text/event-stream', 'application/x-ndjson', 'application/json'])
        for (const bytes of [0, 1, 2000, 100_000]) {
          if (accept === 'application/json' && query === 'snapshot=true') continue
          await new Promise<void>((resolve) => {
            const socket = connect(port, '127.0.0.1')
            const head = `GET /v1/changes?${query} HTTP/1.1\r\nHost: x\r\nAccept: ${accept}\r\n\r\n`
            let left = bytes
            socket.write(head, () => {
              if (bytes === 0) socket.destroy()
            })
            socket.on('data', (piece) => {
              left -= piece.length
              if (left < 0 || accept === 'application/json') socket.destroy()
            })
            socket.on('error', () => {}).on('close', () => resolve())
            if (bytes > 0) setTimeout(() => socket.destroy(), 20)
          })
        }
    await untilWaiting(server, 0)
    const left = async () => okBody(await server.get('/v1/status'))['feed'] as Json // Reads that had begun end first.
    await vi.waitFor(async () => expect(await left()).toMatchObject({ live: 0, behind: 0 }), {
      interval: 5,
    })
    // An answer to a client that has ended its side is sent, and fails then.
    await vi.waitFor(() => expect(server.store.answers.heldBytes).toBe(0), { interval: 5 })
  })
})

describe('a snapshot', () => {
  /** The map that the events of a stream make. */
  function replayed(events: readonly Event[], into = new Map<string, unknown>()): Map<string, unknown> {
    for (const { event, data } of events) {
      if (event === 'pair') into.set(String(data['key']), data['value'])
      if (event !== 'txn') continue
      for (const { key, op, value } of listOf(data, 'changes'))
        if (op === 'put') into.set(String(key), value)
        else into.delete(String(key))
    }
    return into
  }

  test('comes first, and then what follows it', async () => {
    const server = await start()
    for (const key of ['a', 'b', 'c']) await server.put(key, key)
    await server.remove('b')
    const stream = await Stream.open(server, '/v1/changes?snapshot=true')
    const [a, c] = [await stream.expect('pair', { key: 'a', value: 'a' }), await stream.expect('pair', { key: 'c' })]
    const end = await stream.expect('snapshot_end')
    const ts = numberOf(end.data, 'ts')
    expect([a.id, c.id, end.id]).toEqual([`s.${ts}.YQ`, `s.${ts}.Yw`, `${ts}`])
    await server.put('d', 'd')
    await server.remove('a')
    await stream.until('txn')
    await stream.until('txn')
    expect(replayed(stream.events)).toEqual(
      new Map([
        ['c', 'c'],
        ['d', 'd'],
      ]),
    )
    stream.close()
  })

  test('is resumed at each of its ids', { tags: ['long'] }, async () => {
    const server = await start()
    for (const key of ['a', 'b', 'c', 'd']) await server.put(key, key)
    const stream = await Stream.open(server, '/v1/changes?snapshot=true&wait_ms=0')
    const events = await stream.all()
    await server.put('b', 'new')
    await server.remove('c')
    await server.untilTold()
    const { pairs } = okBody(await server.get('/v1/kv')) as { pairs: Json[] }
    const present = new Map(pairs.map(({ key, value }) => [String(key), value]))
    for (const [i, { id, event }] of events.entries()) {
      const headers = { ...SSE, 'last-event-id': id as string }
      const rest = await Stream.open(server, '/v1/changes?snapshot=true&wait_ms=0', headers)
      const later = await rest.all()
      expect(replayed(later, replayed(events.slice(0, i + 1))), `from ${event} ${id}`).toEqual(present)
      expect(later.filter(({ event }) => event === 'pair')).toHaveLength(Math.max(0, 3 - i))
    }
  })

  test('is of a selection, with or without values', async () => {
    const server = await start()
    for (const key of ['a/1', 'b', 'a/2', 'c']) await server.put(key, key)
    const stream = await Stream.open(server, '/v1/changes?snapshot&prefix=a/&key=c&keys_only&wait_ms=0', NDJSON)
    const pairs = (await stream.all()).filter(({ event }) => event === 'pair')
    expect(pairs.map(({ data }) => [data['key'], 'value' in data])).toEqual([
      ['a/1', false],
      ['a/2', false],
      ['c', false],
    ])
  })
})

describe('below the safe point', () => {
  async function collected(): Promise<{ server: TestServer; first: number }> {
    const server = await start()
    await server.beginFeed()
    const first = await server.put('k', '1')
    await server.put('k', '2')
    await server.untilTold()
    okBody(await server.post('/v1/admin/gc', { life_time_ms: 0 }))
    return { server, first }
  }

  test.each([{}, SSE, NDJSON])('%j is 410 with the way to begin again', async (headers) => {
    const { server, first } = await collected()
    const query = `prefix=k&key=a%20%3E%22b&keys_only&heartbeat_ms=100`
    const heartbeat = headers === SSE || headers === NDJSON ? '&heartbeat_ms=100' : ''
    const url = `/v1/changes?${query.replace('&heartbeat_ms=100', heartbeat)}&since_ts=${first - 1}`
    const resync = `/v1/changes?prefix=k&key=a%20%3E%22b&keys_only=${heartbeat}&snapshot=true`
    const answer = await server.get(url, headers as Headers)
    expectProblem(answer, 'ts_below_safe_point', { resync, safe_point: server.store.safePoint })
    expect(answer.headers['link']).toBe(`<${resync}>; rel="resync"`)
    const stream = await Stream.open(server, resync)
    await stream.expect('pair', { key: 'k' })
    stream.close()
  })

  test('a long query is named in the body alone', async () => {
    const { server } = await collected()
    const keys = Array.from({ length: 50 }, (_, i) => `key=${'%FF'.repeat(100)}${i}`).join('&')
    const answer = await server.get(`/v1/changes?since_ts=0&${keys}`)
    expectProblem(answer, 'ts_below_safe_point', { resync: `/v1/changes?${keys}&snapshot=true` })
    expect(answer.headers['link']).toBeUndefined()
  })

  test('a Last-Event-ID is 410, also within a snapshot', async () => {
    const { server, first } = await collected()
    for (const id of [`${first}`, `s.${first}.YQ`])
      expectProblem(await server.get('/v1/changes', { ...SSE, 'last-event-id': id }), 'ts_below_safe_point')
  })
})

describe('400 for', () => {
  const many = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}=${i}`).join('&')

  test.each<[string, Headers, string]>([
    ['since_ts=x', {}, 'since_ts'],
    ['since_ts=-1', {}, 'since_ts'],
    ['since_ts=1&since_ts=2', {}, 'since_ts'],
    ['since_ts=9007199254740992', {}, 'since_ts'],
    ['since_at=yesterday', {}, 'since_at'],
    ['since_at=2026-01-31T12:00:00Z&since_ts=5', {}, 'since_at'],
    ['limit=0', {}, 'limit'],
    ['limit=10001', {}, 'limit'],
    ['limit=5', SSE, 'limit'],
    ['wait_ms=60001', {}, 'wait_ms'],
    ['wait_ms=60001', NDJSON, 'wait_ms'],
    ['heartbeat_ms=99', SSE, 'heartbeat_ms'],
    ['heartbeat_ms=60001', NDJSON, 'heartbeat_ms'],
    ['heartbeat_ms=100', {}, 'heartbeat_ms'],
    ['snapshot=true', {}, 'snapshot'],
    ['snapshot=true&since_ts=5', SSE, 'snapshot'],
    ['snapshot=maybe', SSE, 'snapshot'],
    ['keys_only=2', {}, 'keys_only'],
    ['old_values=no', {}, 'old_values'],
    ['prefix=a&start=b', {}, 'start'],
    ['key=a&end=b', {}, 'start'],
    ['key=', {}, 'key'],
    ['prefix=%FG', {}, 'prefix'],
    ['start=a&start=b', {}, 'start'],
    ['prefixes=a', {}, 'prefixes'],
    [many('prefix', 101), {}, 'prefix'],
    [many('key', 101), SSE, 'key'],
    [`${many('key', 50)}&${many('prefix', 51)}`, NDJSON, 'prefix'],
    [many('key', 3000), {}, 'key'],
    ...[
      'x',
      '-1',
      '1.5',
      '0x10',
      '1e3',
      '1 2',
      '5, 6',
      '99999999999999999',
      's',
      's.',
      's.5',
      's.5.',
      's.0.YQ',
      's.x.YQ',
      's..YQ',
      's.5.YQ==',
      's.5.Y',
      's.5.YR',
      's.5.+/',
      's.5.YQ.YQ',
      'S.5.YQ',
      's.5.Y Q',
      `s.5.${'YWFh'.repeat(2000)}`,
      's.9007199254740993.YQ',
    ].map((id): [string, Headers, string] => ['', { ...SSE, 'last-event-id': id }, 'last-event-id']),
    ['', { 'last-event-id': 's.5.YQ' }, 'last-event-id'],
  ])('%s %j', async (query, headers, field) => {
    const server = await start()
    expectProblem(await server.get(`/v1/changes?${query}`, headers), 'invalid_argument', { field })
    expect(await watches(server)).toBe(0)
  })

  test('100 prefixes and keys are allowed', async () => {
    const server = await start()
    const since = await server.beginFeed()
    await server.put('5', 'v')
    expect(shownIn(await page(server, `since_ts=${since}&${many('prefix', 50)}&${many('key', 50)}`))).toEqual([
      ['5', 'v'],
    ])
  })

  test('413 for a key over its limit, and 405 for other methods', async () => {
    const server = await start()
    for (const name of ['key', 'prefix', 'start'])
      expectProblem(await server.get(`/v1/changes?${name}=${'a'.repeat(4097)}`), 'payload_too_large', { field: name })
    expectProblem(await server.post('/v1/changes', {}), 'method_not_allowed')
  })

  test('10 000 keys are refused before anything is done', async () => {
    const server = await start()
    const keys = Array.from({ length: 10_000 }, () => 'key=a').join('&')
    const stream = await Stream.open(server, `/v1/changes?${keys}`)
    expect(stream.status).toBe(413)
    expect((await stream.problem())['code']).toBe('payload_too_large')
  })
})

describe('with tokens', () => {
  const RW = 'rw-token-0123456789'
  const APP = 'app-token-0123456789'
  const as = (token: string) => ({ authorization: `Bearer ${token}` })

  test('a feed needs a token that reaches all of it', async () => {
    const server = await start({ tokens: `rw ${RW}\nro ${APP} prefix=app/\n` })
    const since = await server.beginFeed()
    for (const headers of [{}, SSE, NDJSON]) {
      expectProblem(await server.get('/v1/changes', headers), 'unauthorized')
      for (const query of [
        '',
        'prefix=',
        'prefix=ap',
        'prefix=app/&prefix=b',
        'prefix=app/&key=b',
        'key=app',
        'start=app/',
        'start=app/&end=app1',
        'end=app/',
      ])
        expectProblem(await server.get(`/v1/changes?${query}`, { ...headers, ...as(APP) }), 'forbidden')
    }
    okBody(await server.post('/v1/txn', { ops: [put('app/1'), put('else')] }, as(RW)))
    await server.untilTold()
    for (const query of ['prefix=app/', 'prefix=app/x&key=app/1', 'start=app/&end=app0', 'start=app/1&end=app/2']) {
      const answer = await server.get(`/v1/changes?since_ts=${since}&${query}`, as(APP))
      expect(shownIn(okBody(answer))).toEqual([['app/1', 'v']])
      expect(answer.body).not.toContain('else')
    }
    const stream = await Stream.open(server, '/v1/changes?prefix=app/', { ...SSE, ...as(APP) })
    await stream.expect('resolved')
    await server.post('/v1/percolator/delete_range', { start: 'a', end: 'z' }, as(RW))
    const { data } = await stream.until('txn')
    expect(listOf(data, 'changes')).toEqual([{ key: 'app/', op: 'delete_range', end: 'app0' }])
    stream.close()
  })

  test('a stream ends when its token is not known any more, or does not reach all of it any more', async () => {
    const limits = { ...DEFAULT_LIMITS, loopDelayMsMax: 0 }
    const everything = new Grant({ mayWrite: true })
    const grants = new Map([RW, APP, 'both'].map((token) => [token, everything]))
    let changed = (): void => {}
    const server = await serve(await openMemoryStore({ answers: new AnswerBudget(limits) }), '', {
      limits,
      authenticate: (token) => grants.get(token),
      onTokens: (listener) => {
        changed = listener
      },
    })
    try {
      const open = (token: string) => Stream.open(server, '/v1/changes?prefix=a&prefix=b', { ...SSE, ...as(token) })
      const [kept, unknown, narrowed] = [await open('both'), await open(RW), await open(APP)]
      for (const stream of [kept, unknown, narrowed]) await stream.expect('resolved')
      const poll = server.get(`/v1/changes?wait_ms=${LONG_MS}`, as(RW))
      await untilWaiting(server, 4, as('both'))
      grants.delete(RW)
      grants.set(APP, new Grant({ mayWrite: true, prefixes: [Buffer.from('a')] }))
      changed()
      await unknown.expect('error', { code: 'unauthorized' })
      await narrowed.expect('error', { code: 'forbidden' })
      expect([await unknown.next(), await narrowed.next()]).toEqual([undefined, undefined])
      expectProblem(await poll, 'unauthorized')
      await server.send('PUT', '/v1/kv/a', as('both'), 'v')
      await kept.until('txn')
      kept.close()
    } finally {
      await server.app.close()
      await server.database.close()
    }
  })
})
