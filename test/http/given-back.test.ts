import { once } from 'node:events'
import { connect as connectSocket, type Socket } from 'node:net'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { TappedEngine } from '../store/support.js'
import { type Json, okBody, rawText, startServer, type TestServer, testServers } from './support.js'

const KIB = 1024
/** Cases of the property. */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 12)

/** All that admission, limits or `/v1/status` count, but for what only grows. */
async function counters(server: TestServer): Promise<Json> {
  const { overload, counts, gc } = okBody(await server.get('/v1/status'))
  const { shed: _, loop_delay_ms: __, outcome_bytes: ___, ...held } = overload as Json
  return { ...held, ...(counts as Json), pins: (gc as Json)['pins'] }
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((next) => setImmediate(next))
}

describe('whatever clients, handlers and the disk do, in whatever order, everything that is counted is given back', () => {
  /** One server for all cases: what one of them leaves behind shows in the next. */
  let server: TestServer
  let port: number
  let idle: Json
  let lockTs: number
  const engine = new TappedEngine()
  let mode: 'held' | 'failing' | 'open' = 'open'
  const held: (() => void)[] = []

  beforeAll(async () => {
    // Small bounds, so that requests are shed too.
    const limits = { bodiesBytesMax: 200 * KIB, answersBytesMax: 2048 * KIB, streamsMax: 3, requestsMax: 12 }
    server = await startServer({ openEngine: engine.open, limits })
    port = await server.listen()
    for (let i = 0; i < 40; i++) await server.put(`k${i}`, Buffer.alloc(20 * KIB, 'v'))
    const { ts } = await server.ok('tso', {})
    lockTs = Number(ts)
    await server.lock(lockTs, ['locked'], { lock_ttl: 3_600_000 })
    engine.onWrite = async (_, land) => {
      if (mode === 'held') await new Promise<void>((go) => held.push(go))
      if (mode === 'failing') throw Object.assign(new Error('no room'), { code: 'LEVEL_IO_ERROR' })
      return land()
    }
    idle = await counters(server)
    expect(idle).toMatchObject({ requests: 0, receiving: 0, body_bytes: 0, answer_bytes: 0, streams: 0 })
  })
  afterAll(async () => {
    await server.app.close()
    await server.database.close()
  })

  function disk(to: typeof mode): void {
    mode = to
    if (to === 'held') return
    for (const go of held.splice(0)) go()
  }

  const NDJSON = 'Accept: application/x-ndjson'
  const JSON_TYPE = 'Content-Type: application/json'
  const keep = (text: string): string => text.replace('Connection: close\r\n', '')
  const long = 'b'.repeat(60 * KIB)
  const post = (path: string, body: unknown): string => keep(rawText(`POST ${path}`, [JSON_TYPE], JSON.stringify(body)))
  /** Not for ever: what is sent behind such a request may keep the server from reading on, so that it hears of no end. */
  const WAIT_MS = 150
  const waiting = `ts=9007199254740990&lock_wait_ms=${WAIT_MS}`
  /** Whole requests as they are on the wire. */
  const REQUESTS: Readonly<Record<string, () => string>> = {
    'a value': () => keep(rawText('GET /v1/kv/k1')),
    'no value': () => keep(rawText('GET /v1/kv/none')),
    'a page': () => keep(rawText('GET /v1/kv?limit=40')),
    'a stream': () => keep(rawText('GET /v1/kv?prefix=k', [NDJSON])),
    'a backup': () => keep(rawText(`GET /v1/admin/backup?ts=${lockTs - 1}`)),
    'a backup that waits': () => keep(rawText(`GET /v1/admin/backup?lock_wait_ms=${WAIT_MS}`)),
    'a read that waits': () => keep(rawText(`GET /v1/kv/locked?${waiting}`)),
    'a page that waits': () => keep(rawText(`GET /v1/kv?${waiting}`)),
    'a write that waits': () => keep(rawText(`PUT /v1/kv/locked?lock_wait_ms=${WAIT_MS}`, [], 'v')),
    'a lock that waits': () =>
      post('/v1/percolator/acquire_pessimistic_lock', {
        ...{ keys: ['locked'], primary: 'locked', start_ts: lockTs + 5, for_update_ts: lockTs + 5 },
        wait_timeout: WAIT_MS,
      }),
    'a write': () => keep(rawText('PUT /v1/kv/w', [], 'value')),
    'a write under a key': () => keep(rawText('PUT /v1/kv/w', ['Idempotency-Key: once'], 'value')),
    'a long write': () => keep(rawText('PUT /v1/kv/w', [], long)),
    'a long write in chunks': () =>
      `${keep(rawText('PUT /v1/kv/w', ['Transfer-Encoding: chunked'])) + `F000\r\n${long}\r\n`.repeat(2)}0\r\n\r\n`,
    'reads together': () =>
      post('/v1/txn', {
        ops: [
          { op: 'scan', limit: 30 },
          { op: 'get', key: 'k2' },
        ],
      }),
    'reads and a write': () =>
      post('/v1/txn', {
        ops: [
          { op: 'get', key: 'k3' },
          { op: 'put', key: 'x', value: 'y' },
        ],
      }),
    'many keys': () => post('/v1/kv/batch_get', { keys: Array.from({ length: 40 }, (_, i) => `k${i}`) }),
    'a body that is no JSON': () => keep(rawText('POST /v1/txn', [JSON_TYPE], '{"ops": ')),
    'a body of no known type': () => keep(rawText('POST /v1/txn', ['Content-Type: text/plain'], long)),
    'a restore': () => keep(rawText('POST /v1/admin/restore', [], 'no backup')),
    'no route': () => keep(rawText('POST /nothing', [], long)),
    'no HTTP': () => 'no HTTP\r\n\r\n',
  }

  type Step =
    | { readonly do: 'send'; readonly client: number; readonly request: string; readonly part: number }
    | { readonly do: 'rest' | 'half-close' | 'destroy' | 'reset' | 'stall' | 'read'; readonly client: number }
    | { readonly do: 'disk'; readonly to: typeof mode }
    | { readonly do: 'turns'; readonly count: number }

  const client = fc.nat({ max: 2 })
  const step: fc.Arbitrary<Step> = fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        do: fc.constant('send' as const),
        client,
        request: fc.constantFrom(...Object.keys(REQUESTS)),
        /** Of its bytes that are sent at once. */
        part: fc.constantFrom(1, 1, 1, 0.1, 0.5, 0.95),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constantFrom('rest', 'half-close', 'destroy', 'reset', 'stall', 'read'),
        client,
      }) as fc.Arbitrary<Step>,
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('disk'),
        to: fc.constantFrom('held', 'open', 'failing'),
      }) as fc.Arbitrary<Step>,
    },
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant('turns'), count: fc.constantFrom(1, 2, 5, 20) }) as fc.Arbitrary<Step>,
    },
  )

  class Client {
    #socket: Socket | undefined
    #rest = ''

    get #open(): Socket {
      if (this.#socket === undefined || this.#socket.destroyed) {
        this.#socket = connectSocket(port, '127.0.0.1').on('error', () => {})
        this.#socket.resume()
        this.#rest = ''
      }
      return this.#socket
    }

    run(step: Exclude<Step, { do: 'disk' | 'turns' }>): void {
      const socket = this.#open
      if (step.do === 'send') {
        const text = this.#rest + (REQUESTS[step.request] as () => string)()
        const sent = Math.ceil(text.length * step.part)
        socket.write(text.slice(0, sent), 'latin1')
        this.#rest = text.slice(sent)
      } else if (step.do === 'rest') {
        socket.write(this.#rest, 'latin1')
        this.#rest = ''
      } else if (step.do === 'half-close') socket.end()
      else if (step.do === 'destroy') socket.destroy()
      else if (step.do === 'reset') socket.resetAndDestroy()
      else if (step.do === 'stall') socket.pause()
      else socket.resume()
    }

    close(): void {
      this.#socket?.destroy()
    }
  }

  async function play(steps: readonly Step[]): Promise<void> {
    const clients = [new Client(), new Client(), new Client()]
    try {
      for (const step of steps) {
        if (step.do === 'disk') disk(step.to)
        else if (step.do === 'turns') await turns(step.count)
        else (clients[step.client] as Client).run(step)
      }
    } finally {
      for (const one of clients) one.close()
      disk('open')
    }
    await vi.waitFor(
      async () => {
        expect((await server.get('/readyz')).statusCode).toBe(200)
        expect(await counters(server)).toEqual(idle)
      },
      { interval: 5 },
    )
  }

  test('property', { timeout: 600_000 }, async () => {
    await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 25, size: 'max' }), play), {
      numRuns: RUNS,
      endOnFailure: true, // What is left behind would fail every smaller case too.
      examples: [
        // A page that is ready only once its client has gone.
        [
          [
            { do: 'send', client: 0, request: 'a page', part: 1 },
            { do: 'turns', count: 2 },
            { do: 'destroy', client: 0 },
          ],
        ],
        // The same behind another answer.
        [
          [
            { do: 'send', client: 0, request: 'a read that waits', part: 1 },
            { do: 'send', client: 0, request: 'a page', part: 1 },
            { do: 'turns', count: 2 },
            { do: 'destroy', client: 0 },
          ],
        ],
        [
          [
            { do: 'send', client: 0, request: 'a lock that waits', part: 1 },
            { do: 'turns', count: 20 },
            { do: 'reset', client: 0 },
          ],
        ],
      ],
    })
  })
})

describe('clients that give up', () => {
  const start = testServers()

  const WAIT = 'lock_wait_ms=3600000'
  const waits: readonly (readonly [string, string])[] = [
    ['a read', rawText(`GET /v1/kv/locked?ts=9007199254740990&${WAIT}`)],
    ['a page', rawText(`GET /v1/kv?ts=9007199254740990&${WAIT}`)],
    ['a backup', rawText(`GET /v1/admin/backup?${WAIT}`)],
    ['a write', rawText(`PUT /v1/kv/locked?${WAIT}`, [], 'v')],
    [
      'a read behind another',
      rawText(`GET /v1/kv/locked?ts=9007199254740990&${WAIT}`).replace('Connection: close\r\n', '').repeat(2),
    ],
  ]
  test.each(waits)('%s that waits for a lock ends when its client goes', async (_, text) => {
    const server = await start()
    const port = await server.listen()
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['locked'], { lock_ttl: 3_600_000 })
    const socket = connectSocket(port, '127.0.0.1').on('error', () => {})
    socket.write(text)
    await vi.waitFor(async () => expect((await counters(server))['requests']).toBeGreaterThan(0))
    await turns(20)
    socket.destroy()
    await vi.waitFor(async () => expect(await counters(server)).toMatchObject({ requests: 0, streams: 0 }), 10_000)
  })

  test('streams that begin once malformed bytes behind them have ended the connection are cut off soon', async () => {
    const server = await start()
    const port = await server.listen()
    await server.put('k', Buffer.alloc(20 * KIB, 'v'))
    const keep = (text: string): string => text.replace('Connection: close\r\n', '')
    const stream = keep(rawText('GET /v1/kv', ['Accept: application/x-ndjson']))
    const behind = keep(rawText('GET /v1/kv/k')) + keep(rawText('POST /nothing', [], 'b'.repeat(60 * KIB)))
    for (const later of [1, 2, 3, 5, 10, 20]) {
      const socket = connectSocket(port, '127.0.0.1').on('error', () => {})
      socket.resume().write(`${stream}${behind}no HTTP\r\n\r\n`)
      await turns(later)
      socket.destroy()
    }
    // A client that receives nothing would have a minute.
    await vi.waitFor(async () =>
      expect(await counters(server)).toMatchObject({ requests: 0, streams: 0, answer_bytes: 0 }),
    )
  })

  test('scans that are broken off after 4 ms leave nothing behind, and the server ready', {
    timeout: 60_000,
  }, async () => {
    const server = await start()
    const port = await server.listen()
    for (let i = 0; i < 200; i++) await server.put(`v${i}`, Buffer.alloc(40_000, 'x'))
    for (let i = 0; i < 60; i++) {
      const socket = connectSocket(port, '127.0.0.1').on('error', () => {})
      await once(socket, 'connect')
      socket.write(rawText('GET /v1/kv?limit=200'))
      await new Promise((late) => setTimeout(late, 4))
      socket.destroy()
    }
    await vi.waitFor(async () => expect(await counters(server)).toMatchObject({ requests: 0, answer_bytes: 0 }), {
      timeout: 30_000,
    })
    expect((await server.get('/readyz')).statusCode).toBe(200)
    expect((await server.get('/v1/kv/v1')).statusCode).toBe(200)
  })
})

test('a server that sheds reads says that it is not ready', async () => {
  const server = await startServer({ limits: { answersBytesMax: 64 * KIB } })
  try {
    const lease = server.store.answers.lease()
    for (const [bytes, status] of [
      [64 * KIB - 1, 200],
      [1, 503],
    ] as const) {
      lease.hold(bytes)
      const [ready, read] = [await server.get('/readyz'), await server.get('/v1/kv')]
      expect([ready.statusCode, read.statusCode]).toEqual([status, status])
      if (status === 503)
        expect([ready.json<Json>()['code'], ready.headers['retry-after']]).toEqual(['overloaded', '1'])
    }
    lease.end()
    expect((await server.get('/readyz')).statusCode).toBe(200)
  } finally {
    await server.app.close()
    await server.database.close()
  }
})
