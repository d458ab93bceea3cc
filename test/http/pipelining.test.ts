import { describe, expect, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { TappedEngine } from '../store/support.js'
import { asked, askedJson, RawClient, talk } from './raw-dialogue.js'
import { okBody, testServers } from './support.js'

const start = testServers()
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 60)

const get = (key: string): string => asked(`GET /v1/kv/${key}`)
const put = (key: string, value: string): string => asked(`PUT /v1/kv/${key}`, [], value)
const txn = (...ops: readonly object[]): string => askedJson('POST /v1/txn', { ops })
/** Outside the subset of the fast lane. */
const byNode = (request: string): string => request.replace('Host: test', 'Host: test\r\nX-Any: 1')
const chunked = (request: string): string =>
  request.replace(/Content-Length: \d+/, 'Transfer-Encoding: chunked').replace(/\r\n\r\n([\s\S]*)$/, (_, body) => {
    return `\r\n\r\n${body === '' ? '' : `${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n`}0\r\n\r\n`
  })

/** A request, and what it answers and does where the keys have these values. */
type Drawn = readonly [
  request: string,
  run: (values: Map<string, string>) => { status: number; body?: RegExp | string },
]

function drawn(random: Random, count: number): Drawn {
  const key = random.pick(['p/a', 'p/b'])
  const lane = random.chance(0.5) ? byNode : (request: string) => request
  const found = (values: Map<string, string>) => {
    const body = values.get(key)
    return body === undefined ? { status: 404 } : { status: 200, body }
  }
  const done = { status: 200 }
  return random.pick<() => Drawn>([
    () => [lane(get(key)), found],
    () => [lane(get(key)), found],
    () => [asked(`GET /v1/kv/${key}?lock_wait_ms=5`), found],
    () => [
      asked('GET /v1/kv?prefix=p/'),
      (values) => ({ status: 200, body: new RegExp(`^\\{"pairs":\\[${'\\{[^}]*\\},?'.repeat(values.size)}\\]`) }),
    ],
    () => [
      asked('GET /v1/kv?prefix=p/&count_only'),
      (values) => ({ status: 200, body: new RegExp(`"count":${values.size},`) }),
    ],
    () => [
      asked('GET /v1/kv?prefix=p/', ['Accept: application/x-ndjson']),
      (values) => ({ status: 200, body: new RegExp(`^(.*\n){${values.size}}$`) }),
    ],
    () => [
      askedJson('POST /v1/kv/batch_get', { keys: ['p/a', 'p/b'] }),
      (values) => ({ status: 200, body: new RegExp(`^\\{"pairs":\\[${'\\{[^}]*\\},?'.repeat(values.size)}\\]`) }),
    ],
    () => [
      random.pick([lane, chunked])(put(key, `${count}`)),
      (values) => {
        values.set(key, `${count}`)
        return done
      },
    ],
    () => [
      asked(`PUT /v1/kv/${key}`, ['If-None-Match: *'], `${count}`),
      (values) => {
        if (values.has(key)) return { status: 412 }
        values.set(key, `${count}`)
        return done
      },
    ],
    () => [
      lane(asked(`DELETE /v1/kv/${key}`)),
      (values) => {
        values.delete(key)
        return done
      },
    ],
    () => [
      asked('DELETE /v1/kv?prefix=p/'),
      (values) => {
        values.clear()
        return done
      },
    ],
    () => [
      lane(txn({ op: 'get', key }, { op: 'put', key, value: `${count}` })),
      (values) => {
        const found = values.has(key)
        values.set(key, `${count}`)
        return { status: 200, body: new RegExp(`"results":\\[\\{"found":${found}`) }
      },
    ],
  ])()
}

function cut(random: Random, text: string): string[] {
  if (random.chance(0.4)) return [text]
  const ends = Array.from({ length: 1 + random.below(4) }, () => random.below(text.length)).sort((a, b) => a - b)
  return [...ends, text.length].map((end, i) => text.slice(i === 0 ? 0 : ends[i - 1], end))
}

describe.each([true, false])('with the fast lane: %s', (fastLane) => {
  test('requests of one connection do what they would do one after the other, and a client that has ended its side gets all answers', {
    tags: ['long'],
  }, async () => {
    const server = await start({ fastLane })
    const port = await server.listen()
    for (let seed = 1; seed <= RUNS; seed++) {
      const random = new Random(seed)
      await server.send('DELETE', '/v1/kv?prefix=p/')
      const requests = Array.from({ length: 2 + random.below(8) }, (_, i) => drawn(random, i))
      const values = new Map<string, string>()
      const wanted = requests.map(([, run]) => run(values))
      const answers = await talk(port, ...cut(random, requests.map(([request]) => request).join('')))
      const text = `seed ${seed}: ${requests.map(([request]) => request).join('\n')}`
      expect(
        answers.map(({ status }) => status),
        text,
      ).toEqual(wanted.map(({ status }) => status))
      for (const [i, { body }] of wanted.entries()) {
        if (typeof body === 'string') expect(answers[i]?.body, text).toBe(body)
        else if (body !== undefined) expect(answers[i]?.body, text).toMatch(body)
      }
    }
  })

  test('a request that is not safe waits for the reads before it, and reads run at once', async () => {
    const engine = new TappedEngine()
    const server = await start({ fastLane, openEngine: engine.open })
    await server.lock(server.database.store.now(), ['primary', 'locked'], { lock_ttl: 60_000 })
    const port = await server.listen()
    const client = await RawClient.open(port)
    const waiting = asked('GET /v1/kv/locked?lock_wait_ms=60000&ts=9007199254740990')
    await client.write(waiting + waiting + put('a', '1') + get('a'))
    const inFlight = async (): Promise<unknown> => okBody(await server.get('/v1/status'))['overload']
    await expect.poll(inFlight).toMatchObject({ requests: 2 })
    expect((await server.get('/v1/kv/a')).statusCode).toBe(404)
    client.socket.resetAndDestroy()
    await expect.poll(inFlight).toMatchObject({ requests: 0 })
    expect((await server.get('/v1/kv/a')).statusCode).toBe(404)
  })

  test('what waits is bounded, and all of it is answered', { tags: ['long'] }, async () => {
    const server = await start({ fastLane })
    const port = await server.listen()
    const count = 300
    const answers = await talk(
      port,
      Array.from({ length: count }, (_, i) => byNode(put('a', `${i}`)) + get('a')).join(''),
    )
    expect(answers.filter((_, i) => i % 2 === 1).map(({ body }) => body)).toEqual(
      Array.from({ length: count }, (_, i) => `${i}`),
    )
  })

  test.each([
    put('a', '1'),
    byNode(put('a', '1')),
    chunked(put('a', '1')),
    txn({ op: 'increment', key: 'a' }),
    asked('DELETE /v1/kv?prefix=x'),
    askedJson('POST /v1/kv/batch_get', { keys: ['a'] }),
    asked('GET /v1/kv?prefix=a'),
    asked('GET /v1/admin/backup'),
    put('a', '1') + byNode(put('b', '1')) + get('b'),
  ])('what is no request, behind %j, is refused when that is answered', { tags: ['long'] }, async (request) => {
    const server = await start({ fastLane })
    const port = await server.listen()
    const wanted = (request.match(/HTTP\/1\.1/g) ?? []).map(() => 200)
    for (const [garbage, status] of [
      ['\0\r\n\r\n', 400],
      [`${asked(`PUT /v1/kv/c`, ['Transfer-Encoding: chunked'])}x\r\n`, 400],
      [asked(`PUT /v1/kv/c`, ['Content-Length: 9', 'Content-Length: 8']), 400],
      [asked('GET /v1/kv/a', [`X-Long: ${'x'.repeat(40_000)}`]), 413],
      [asked('CONNECT a:1'), 404],
      ['GET /v1/kv/a HTTP/1.1\r\nHost', 400],
    ] as const)
      for (const pieces of [[request + garbage], [request, garbage]])
        expect((await talk(port, ...pieces)).map(({ status }) => status)).toEqual([...wanted, status])
  })

  test('a body that breaks behind its own answer is not answered twice', async () => {
    const server = await start({ fastLane, tokens: 'rw token-0123456789\n' })
    const client = await RawClient.open(await server.listen())
    await client.write(asked('PUT /v1/kv/a', ['Transfer-Encoding: chunked']))
    await client.answered(1)
    await client.write('no chunk\r\n')
    expect((await client.closed()).map(({ status }) => status)).toEqual([401])
  })

  test.each(['h2c', 'websocket'])(
    'a request with Upgrade: %s is one like any other',
    { tags: ['long'] },
    async (protocol) => {
      const server = await start({ fastLane })
      const port = await server.listen()
      const upgrade = (request: string): string =>
        request.replace(
          'Host: test',
          `Host: test\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: ${protocol}`,
        )
      const dialogue = [
        put('a', '1'),
        upgrade(get('a')),
        upgrade(put('a', '2')),
        get('a'),
        upgrade(chunked(put('a', '3'))),
        ...Array.from({ length: 12 }, () => upgrade(get('a'))),
        byNode(get('a')),
      ].join('')
      const wanted = [undefined, '1', undefined, '2', undefined, ...Array.from({ length: 13 }, () => '3')]
      for (const cuts of [[dialogue], [dialogue.slice(0, 300), dialogue.slice(300)], [...dialogue]]) {
        const answers = await talk(port, ...cuts)
        expect(answers.map(({ status }) => status)).toEqual(wanted.map(() => 200))
        expect(answers.map(({ body }, i) => wanted[i] && body)).toEqual(wanted)
        await server.send('DELETE', '/v1/kv/a')
      }
    },
  )

  test.each([
    ['GET /v1/kv/k'],
    ['HEAD /v1/kv/k'],
    ['GET /v1/kv?prefix=k'],
    ['GET /v1/kv?count_only'],
    ['GET /v1/kv', 'Accept: application/x-ndjson'],
    ['GET /v1/admin/backup'],
    ['GET /v1/changes?since_ts=1'],
    ['GET /v1/changes?since_ts=1&wait_ms=50', 'Accept: application/x-ndjson'],
    ['GET /v1/kv/k?wait_ms=60000', 'If-None-Match: "TAG"'],
    ['GET /v1/changes?wait_ms=60000'],
    ['GET /metrics'],
    ['GET /openapi.json'],
    ['GET /docs'],
    ['GET /v1/status'],
    ['GET /livez'],
    ['DELETE /v1/kv?prefix=x'],
    ['DELETE /v1/kv/x'],
  ])('a client that has ended its side is answered %s', { tags: ['long'] }, async (line, ...headers) => {
    const server = await start({ fastLane })
    const tag = `${await server.put('k', 'value')}`
    const port = await server.listen()
    for (const before of ['', put('other', '1')]) {
      const request = asked(
        line,
        headers.map((text) => text.replace('TAG', tag)),
      )
      const client = await RawClient.open(port)
      client.socket.end(before + request)
      await client.closed()
      expect(client.text.match(/^HTTP\/1\.1 \d+/gm)?.at(-1)).toBe(
        line.includes('/k?wait') ? 'HTTP/1.1 304' : 'HTTP/1.1 200',
      )
      if (line.includes('wait_ms=50')) expect(client.text).toContain('"resolved_ts"')
    }
  })
})
