import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { type Connection, connect } from '../../../src/client/index.js'
import { failureOf, noteOfRetry } from '../../../src/commands/client/client-command.js'
import { runCommand } from './run-command.js'

interface Foreign {
  readonly db: Connection
  readonly notes: readonly string[]
}

const running: { readonly server: Server; readonly db: Connection }[] = []
afterEach(async () => {
  for (const { server, db } of running.splice(0)) {
    await db.close()
    server.closeAllConnections()
    server.close()
  }
})

/** Waits are short, because some of these never answer. */
async function connectTo(answer: RequestListener, retryMs = 1500): Promise<Foreign> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const notes: string[] = []
  const onRetry = noteOfRetry((text) => void notes.push(text))
  const db = connect(`http://127.0.0.1:${port}`, { requestTimeoutMs: 300, retryMs, onRetry })
  running.push({ server, db })
  return { db, notes }
}

const answering =
  (status: number, type: string | undefined, body = ''): RequestListener =>
  (_request, response) =>
    void response.writeHead(status, type === undefined ? {} : { 'content-type': type }).end(body)

/** Goes on until the client hangs up. */
const endless =
  (headers: Record<string, string>, pauseMs = 0): RequestListener =>
  (_request, response) => {
    response.writeHead(200, headers)
    const piece = Buffer.alloc(pauseMs === 0 ? 65_536 : 1, 'x')
    const write = (): void => {
      if (response.destroyed) return
      if (pauseMs > 0) setTimeout(write, pauseMs)
      response.write(piece, pauseMs > 0 ? undefined : () => setImmediate(write))
    }
    write()
  }

const JSON_TYPE = 'application/json'
const FOREIGN: Readonly<Record<string, RequestListener>> = {
  'an object without fields': answering(200, JSON_TYPE, '{}'),
  'a list': answering(200, JSON_TYPE, '[]'),
  null: answering(200, JSON_TYPE, 'null'),
  'fields of other types': answering(
    200,
    JSON_TYPE,
    JSON.stringify({
      ts: '1',
      pairs: {},
      locks: [null],
      observers: 7,
      leases: '',
      count: '1',
      found: 1,
      writes: 1,
      results: 5,
    }),
  ),
  'other items': answering(
    200,
    JSON_TYPE,
    JSON.stringify({
      ts: 5,
      pairs: [{}],
      locks: [{}],
      observers: [{}],
      leases: [{ name: 'a', expires_at: 5 }],
      writes: [1],
      values: [],
      results: [1],
    }),
  ),
  HTML: answering(200, 'text/html', '<p>Welcome</p>'),
  'HTML as a stream of events': answering(200, 'text/event-stream', 'event: welcome\ndata: <p>\n\n'),
  'MessagePack that is none': answering(200, 'application/msgpack', '\xc1\xc1'),
  'no content': answering(204, undefined),
  'a redirect': (_request, response) => void response.writeHead(302, { location: '/elsewhere' }).end(),
  'not found': answering(404, 'text/html', '<p>404</p>'),
  'an endless page': endless({ 'content-type': 'text/html' }),
  'endless bytes': endless({ 'content-type': 'image/png' }),
}

const COMMANDS: readonly (readonly string[])[] = [
  ['get', 'k'],
  ['put', 'k', 'v'],
  ['del', 'k'],
  ['scan'],
  ['count'],
  ['status'],
  ['locks'],
  ['mvcc', 'k'],
  ['observers'],
  ['leases'],
  ['leases', 'a'],
  ['changes'],
  ['changes', '--snapshot'],
  ['watch', 'k'],
  ['txn', '-'],
]

async function failure(
  { db }: Foreign,
  args: readonly string[],
  isTerminal = false,
): Promise<Error & { code?: string }> {
  const error = await runCommand(db, args, { isTerminal, stdin: '{"ops":[]}' }).then(
    ({ output }) => new Error(`it succeeded: ${output}`),
    (error: unknown) => error,
  )
  return failureOf(error) as Error
}

describe.each(Object.entries(FOREIGN))('a server that answers %s', (_name, answer) => {
  test.each(COMMANDS)('perkv %s %s', async (...args) => {
    const foreign = await connectTo(answer)
    for (const isTerminal of [false, true]) {
      const failed = await failure(foreign, args, isTerminal)
      expect(failed.message).toMatch(
        /^unexpected_answer: [^\n]{1,200}: this is no PerKV server, or something stands before it$/,
      )
      expect(failed.code).toBe('failed')
    }
  })
})

/** All at once, because they wait for the end of their patience. */
async function byEach(check: (args: readonly string[]) => Promise<void>): Promise<void> {
  await Promise.all(COMMANDS.map(check))
}

test.each(['application/msgpack', 'application/problem+json'])(
  'an answer of %s that never ends is given up',
  async (type) => {
    await byEach(async (args) => {
      const foreign = await connectTo(endless({ 'content-type': type, etag: '"5"' }, 20))
      const failed = await failure(foreign, args)
      const given = /no (answer|end of the answer) within 300 ms|this is no PerKV server/
      expect(failed.message, args.join(' ')).toMatch(given)
      expect(failed.code).toBe('failed')
    })
  },
)

test('a connection that is cut in every answer', () =>
  byEach(async (args) => {
    const cut: RequestListener = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/msgpack', 'content-length': 100, etag: '"5"' })
      response.write('x', () => response.destroy())
    }
    const foreign = await connectTo(cut, 4500)
    const failed = await failure(foreign, args)
    const given = /^(POST|GET|PUT|DELETE) http:\S+ failed, tried \d+ times: |this is no PerKV server/
    expect(failed.message, args.join(' ')).toMatch(given)
    expect(failed.code).toBe('failed')
    if (failed.message.includes('tried')) expect(foreign.notes).toEqual([expect.stringMatching(/; trying again$/)])
  }))

test('JSON that is nested deeper than a server reads it is refused by the client', async () => {
  const { db } = await connectTo(answering(200, JSON_TYPE, '{}'))
  for (const depth of [33, 100_000]) {
    const stdin = `{"ops":${'['.repeat(depth)}${']'.repeat(depth)}}`
    await expect(runCommand(db, ['txn', '-'], { stdin })).rejects.toThrow(
      'stdin is not JSON: it has more than 32 levels',
    )
  }
})

test('a stream that is cut again and again is told of, and given up', { timeout: 30_000 }, async () => {
  const { db } = await connectTo((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(':\n', () => response.destroy())
  })
  const told: unknown[] = []
  const onError = (error: unknown): void => {
    told.push(error)
    if (told.length === 3) throw error
  }
  const read = async (): Promise<void> => {
    for await (const _ of db.watch('k', { onError }));
  }
  await expect(read()).rejects.toMatchObject({ code: 'stream_cut', times: 3 })
  expect(told).toMatchObject([{ times: 1 }, { times: 2 }, { times: 3 }])
})
