import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { askOverHttp } from '../../src/oracle/ask-over-http.js'
import { Clock } from '../../src/oracle/clock.js'
import { LeaderOracle } from '../../src/oracle/leader-oracle.js'
import type { OracleRow } from '../../src/oracle/oracle-row.js'
import { decodeAsk, encodeAnswer } from '../../src/oracle/signed-ask.js'
import { TIMESTAMPS, type TimestampAsk } from '../../src/oracle/timestamp-ask.js'

const SECRET = new Uint8Array(32).fill(7)
const ASK = { count: 3, floor: 9 }

const ends: (() => void)[] = []
afterEach(() => {
  for (const end of ends.splice(0)) end()
})

async function serve(answer: (url: string, body: Buffer, reply: ServerResponse, request: IncomingMessage) => void) {
  const server: Server = createServer((request, reply) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => answer(url, Buffer.concat(chunks), reply, request))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  ends.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return url
}

function forwarder(timeoutMs?: number) {
  const { ask, close } = askOverHttp({ secret: SECRET, timeoutMs })
  ends.push(close)
  return (url: string, signal = new AbortController().signal) => ask(TIMESTAMPS, url, ASK, signal)
}

function endless(reply: ServerResponse): void {
  const timer = setInterval(() => reply.write(Buffer.alloc(3000)), 1)
  reply.on('close', () => clearInterval(timer))
}

test('asks, and takes the answer, over one connection', async () => {
  const ports = new Set<number | undefined>()
  const seen: unknown[] = []
  const url = await serve((url, body, reply, request) => {
    ports.add(request.socket.remotePort)
    const asked = decodeAsk(TIMESTAMPS, SECRET, url, body)
    seen.push([request.method, request.url, request.headers['content-type'], asked?.ask])
    reply.end(
      encodeAnswer(TIMESTAMPS, SECRET, asked?.nonce ?? '', ports.size === 1 ? { last: 12, nowMs: 5 } : 'not_leader'),
    )
  })
  const forward = forwarder()
  expect(await forward(url)).toEqual({ last: 12, nowMs: 5 })
  expect(await forward(url)).toEqual({ last: 12, nowMs: 5 })
  expect(ports.size).toBe(1)
  expect(seen[0]).toEqual(['POST', '/v1/internal/timestamps', 'application/octet-stream', ASK])
})

test('a server that does not lead', async () => {
  const url = await serve((url, body, reply) => {
    reply.end(encodeAnswer(TIMESTAMPS, SECRET, decodeAsk(TIMESTAMPS, SECRET, url, body)?.nonce ?? '', 'not_leader'))
  })
  expect(await forwarder()(url)).toBe('not_leader')
})

test.each<[string, RegExp, (reply: ServerResponse) => void]>([
  ['another status', /status 503/, (reply) => reply.writeHead(503).end()],
  [
    'an answer for another ask',
    /not signed/,
    (reply) => reply.end(encodeAnswer(TIMESTAMPS, SECRET, 'x', 'not_leader')),
  ],
  ['an empty answer', /not signed/, (reply) => reply.end()],
  ['an endless answer', /too long/, endless],
  ['a connection that ends', /no timestamps from/, (reply) => reply.destroy()],
  [
    'an answer that is cut off',
    /no timestamps from/,
    (reply) => reply.writeHead(200, { 'content-length': 9 }).flushHeaders(),
  ],
  ['no answer', /does not answer|no timestamps from/, () => {}],
])('%s is a failure', async (_, message, answer) => {
  const url = await serve((_url, _body, reply) => answer(reply))
  await expect(forwarder(200)(url)).rejects.toThrow(message)
})

test('nobody listens, or the URL is none', async () => {
  await expect(forwarder()('http://127.0.0.1:1')).rejects.toThrow(/no timestamps from http:\/\/127.0.0.1:1/)
  await expect(forwarder()('nowhere')).rejects.toThrow(/no timestamps from nowhere/)
})

test('ends when the signal is aborted', async () => {
  const aborting = new AbortController()
  const url = await serve(() => aborting.abort())
  await expect(forwarder()(url, aborting.signal)).rejects.toThrow(/no timestamps from/)
})

test('three servers in real time hand out timestamps in order, while the one that leads stops', {
  tags: ['long'],
}, async () => {
  let bytes: Uint8Array | undefined
  const row: OracleRow = {
    read: async () => bytes,
    swap: async (expected, next) => {
      if (Buffer.compare(expected ?? Buffer.alloc(0), bytes ?? Buffer.alloc(0)) !== 0) return 'refused'
      bytes = next
      return 'done'
    },
  }
  const { ask, close } = askOverHttp({ secret: SECRET })
  ends.push(close)
  const forward = (url: string, asked: TimestampAsk, signal: AbortSignal) => ask(TIMESTAMPS, url, asked, signal)
  const oracles: LeaderOracle[] = []
  for (let i = 0; i < 3; i++) {
    const url = await serve(async (url, body, reply) => {
      const asked = decodeAsk(TIMESTAMPS, SECRET, url, body)
      if (asked === undefined) return void reply.writeHead(403).end()
      reply.end(encodeAnswer(TIMESTAMPS, SECRET, asked.nonce, (await oracles[i]?.answer(asked.ask)) ?? 'not_leader'))
    })
    const oracle = new LeaderOracle({ row, forward, url, clock: new Clock({}) })
    ends.push(() => void oracle.close())
    oracles.push(oracle)
    oracle.start()
    await oracle.next()
  }
  expect(oracles.map(({ role }) => role.role)).toEqual(['leader', 'follower', 'follower'])
  let before = 0
  for (let i = 0; i < 300; i++) {
    if (i === 150) await oracles[0]?.close()
    const working = i < 150 ? oracles : oracles.slice(1)
    const all = (await Promise.all(working.map((oracle) => oracle.next()))).sort((a, b) => a - b)
    expect(new Set(all).size).toBe(working.length)
    expect(all[0]).toBeGreaterThan(before)
    before = all.at(-1) as number
  }
  expect(oracles.filter(({ role }) => role.role === 'leader')).toHaveLength(1)
})
