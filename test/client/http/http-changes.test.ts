import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { parseFeedPosition } from '../../../src/changes/rules/feed-position.js'
import { type ConnectOptions, connect, type Db, isKvError, type KvError } from '../../../src/client/index.js'
import { failureOf } from '../../coordinator/support.js'

const toEnd: (() => unknown)[] = []

afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end()
})

type Answering = (response: ServerResponse, request: IncomingMessage, index: number) => unknown

interface FakeServer {
  readonly db: Db
  readonly requests: { readonly url: string; readonly lastEventId: string | undefined }[]
  /** Connections that are open. */
  open(): number
}

/** A server whose streams the test writes. */
async function serve(answering: Answering, options: ConnectOptions = {}): Promise<FakeServer> {
  const requests: { url: string; lastEventId: string | undefined }[] = []
  const open = new Set<ServerResponse>()
  const server = createServer((request, response) => {
    const { url = '' } = request
    if (url.startsWith('/v1/percolator/tso'))
      return response.setHeader('content-type', 'application/json').end('{"ts":7}')
    const id = request.headers['last-event-id']
    open.add(response)
    response.on('close', () => open.delete(response))
    response.setHeader('content-type', 'text/event-stream')
    answering(response, request, requests.push({ url, lastEventId: id?.toString() }) - 1)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const db = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, options)
  toEnd.push(async () => {
    await db.close()
    server.closeAllConnections()
    server.close()
  })
  return { db, requests, open: () => open.size }
}

function event(name: string, data: object, id?: string | number): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n${id === undefined ? '' : `id: ${id}\n`}\n`
}

function txn(commitTs: number, ...keys: unknown[]): string {
  const changes = keys.map((key) => ({ key, op: 'put', value: 'v' }))
  return event('txn', { commit_ts: commitTs, start_ts: commitTs - 5, changes }, commitTs)
}

function resolved(ts: number): string {
  return event('resolved', { resolved_ts: ts }, ts)
}

async function take<T>(items: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = []
  for await (const item of items) if (taken.push(item) === count) break
  return taken
}

describe.each([
  { way: 'by node:http', options: {} },
  { way: 'by fetch', options: { fetch } },
] as { way: string; options: ConnectOptions }[])('$way', ({ options }) => {
  test('all fields of a change', async () => {
    const changes = [
      { key: 'a', op: 'put', value: { base64: '/wA=' }, expire_ts: 900, old: { value: '1', commit_ts: 9 } },
      { key: 'b', op: 'delete', old: null },
      { key: 'c', op: 'expire' },
      { key: { base64: '/w==' }, op: 'delete_range', end: { base64: '//8=' } },
    ]
    const server = await serve((response) => {
      response.write(event('txn', { commit_ts: 50, start_ts: 40, changes }, 50) + resolved(60))
    }, options)
    const [given] = await take(server.db.changes({ as: 'bytes', oldValues: true, sinceTs: 10 }), 1)
    const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values)
    expect(given).toEqual({
      ...{ isSnapshot: false, commitTs: 50, startTs: 40, part: 0, isLast: true, position: '50' },
      changes: [
        {
          ...{ op: 'put', key: bytes(97), value: bytes(255, 0), commitTs: 50, expireTs: 900 },
          old: { value: bytes(49), commitTs: 9 },
        },
        { op: 'delete', key: bytes(98), commitTs: 50, old: null },
        { op: 'expire', key: bytes(99), commitTs: 50, old: undefined },
        { op: 'delete_range', start: bytes(255), end: bytes(255, 255), commitTs: 50 },
      ],
    })
    expect(server.requests).toEqual([{ url: '/v1/changes?since_ts=10&old_values=true', lastEventId: '10' }])
  })

  test('events that come byte by byte, with comments', async () => {
    const text = Buffer.from(
      `: hello\nretry: 1000\n\n${txn(50, 'Zürich', '🦀').replaceAll('\n', '\r\n')}: x\n\n${resolved(60)}`,
    )
    const server = await serve(async (response) => {
      for (const byte of text) {
        response.write(Uint8Array.of(byte))
        await new Promise(setImmediate)
      }
    }, options)
    const [given] = await take(server.db.changes({ sinceTs: 10 }), 1)
    expect(given?.changes.map((change) => 'key' in change && change.key)).toEqual(['Zürich', '🦀'])
  })

  test('a snapshot goes on within itself, and the feed behind it', async () => {
    const pair = (key: string): string => {
      return event('pair', { key, value: 'v', commit_ts: 5 }, `s.20.${Buffer.from(key).toString('base64url')}`)
    }
    const server = await serve((response, _, index) => {
      if (index === 0) response.end(pair('a') + pair('~?>'))
      else if (index === 1) response.end(pair('~~') + event('snapshot_end', { ts: 20 }, 20) + txn(30, 'a'))
      else response.write(txn(30, 'a') + resolved(60))
    }, options)
    const given = await take(server.db.changes({ snapshot: true, prefix: '' }), 3)
    expect(given.map(({ commitTs, position }) => [commitTs, parseFeedPosition(position)?.ts])).toEqual([
      [20, 20],
      [20, 20],
      [30, 30],
    ])
    expect(server.requests).toEqual([
      { url: '/v1/changes?snapshot=true', lastEventId: undefined },
      { url: '/v1/changes?snapshot=true', lastEventId: 's.20.fj8-' },
      { url: '/v1/changes?since_ts=20', lastEventId: '20' },
    ])
  })

  test('a connection that is silent for some heartbeats is opened again', { tags: ['long'] }, async () => {
    const server = await serve((response, _, index) => {
      response.write(index === 0 ? resolved(20) : txn(30, 'a') + resolved(60))
    }, options)
    const [given] = await take(server.db.changes({ keys: ['a'], sinceTs: 10, heartbeatMs: 100 }), 1)
    expect(given?.commitTs).toBe(30)
    expect(server.requests.map(({ lastEventId }) => lastEventId)).toEqual(['10', '20'])
  })

  test('a server that stops, and one that is busy, are waited for', async () => {
    const server = await serve((response, _, index) => {
      const problem = { code: 'overloaded', title: 'Overloaded', status: 503, detail: 'the server stops' }
      if (index === 0) response.end(event('error', problem))
      else if (index === 1) response.writeHead(503).end()
      else response.write(txn(30, 'a') + resolved(60))
    }, options)
    expect(await take(server.db.changes({ sinceTs: 10 }), 1)).toHaveLength(1)
    expect(server.requests).toHaveLength(3)
  })

  test('a storage that fails is told of, and waited for unless it has failed from the beginning', async () => {
    const problem = { code: 'storage_unavailable', title: 'x', status: 503, detail: 'the disk is full' }
    const failed = event('error', problem)
    const server = await serve((response, _, index) => {
      response.write(index === 0 ? failed : index === 1 ? resolved(20) + failed : txn(30, 'a') + resolved(60))
    }, options)
    expect(isKvError(await failureOf(take(server.db.watch('k'), 1)), 'storage_unavailable')).toBe(true)
    const errors: unknown[] = []
    const onError = (error: unknown): void => {
      errors.push(error)
    }
    expect(await take(server.db.changes({ sinceTs: 10, onError }), 1)).toHaveLength(1)
    expect(errors.map((error) => isKvError(error, 'storage_unavailable'))).toEqual([true])
  })

  test('collected changes are an error, at the beginning and later, behind all that came before', async () => {
    const problem = {
      ...{ code: 'ts_below_safe_point', title: 'x', status: 410, detail: 'collected', safe_point: 40 },
      resync: '/v1/changes?snapshot=true',
    }
    const server = await serve((response, _, index) => {
      if (index === 0) response.write(txn(30, 'a') + resolved(31) + event('error', problem))
      else response.writeHead(410, { 'content-type': 'application/problem+json' }).end(JSON.stringify(problem))
    }, options)
    const given: number[] = []
    const follow = async (): Promise<void> => {
      for await (const { commitTs } of server.db.changes({ sinceTs: 10 })) given.push(commitTs)
    }
    for (const _ of [1, 2]) {
      const error = await failureOf(follow())
      expect(isKvError(error, 'ts_below_safe_point')).toBe(true)
      expect((error as KvError<'ts_below_safe_point'>).fields).toEqual({ safePoint: 40, resync: problem.resync })
    }
    expect(given).toEqual([30])
  })

  test('a loop ends when it is left, when its signal is aborted, and when the client is closed', async () => {
    const server = await serve((response) => response.write(txn(30, 'a') + resolved(31)), options)
    const stop = new AbortController()
    const ends: unknown[] = []
    await take(server.db.changes({ sinceTs: 10 }), 1)
    await expect.poll(server.open).toBe(0)
    const follow = async (signal?: AbortSignal): Promise<void> => {
      for await (const _ of server.db.changes({ sinceTs: 10, signal })) ends.push('one')
    }
    const [aborted, closed] = [follow(stop.signal), follow()]
    await expect.poll(() => ends.length).toBe(2)
    stop.abort()
    await aborted
    expect(server.open()).toBeGreaterThan(0)
    await server.db.close()
    await closed
    await expect.poll(server.open).toBe(0)
    await expect(follow()).rejects.toThrow('is closed')
  })

  test('a loop that is slower than its server leaves the rest in the network', async () => {
    let isFull = false
    const server = await serve(async (response) => {
      const long = event('txn', {
        commit_ts: 30,
        start_ts: 20,
        changes: [{ key: 'a', op: 'put', value: 'v'.repeat(2 ** 20) }],
      })
      for (let i = 0; i < 64 && !isFull; i++)
        isFull = !response.write(i < 63 ? long : resolved(31)) && response.writableLength > 2 ** 23
    }, options)
    for await (const _ of server.db.changes({ sinceTs: 10 })) {
      await expect.poll(() => isFull).toBe(true)
      break
    }
    await expect.poll(server.open).toBe(0)
  })

  test('a watch shows each state once, over several connections', async () => {
    const value = (text: string, ts: number): string => event('value', { key: 'k', value: text, commit_ts: ts }, ts)
    const server = await serve((response, _, index) => {
      if (index === 0) response.end(value('1', 30) + event('absent', { key: 'k', commit_ts: 40 }, 40))
      else response.write(event('absent', { key: 'k', commit_ts: 40 }, 40) + value('', 50))
    }, options)
    expect(await take(server.db.watch('k', { seenTs: 20 }), 3)).toEqual([
      { value: '1', commitTs: 30 },
      { value: undefined, commitTs: 40 },
      { value: '', commitTs: 50 },
    ])
    expect(server.requests).toEqual([
      { url: '/v1/kv/k', lastEventId: '20' },
      { url: '/v1/kv/k', lastEventId: '40' },
    ])
  })

  test('keys that have no path are watched by the feed', async () => {
    const server = await serve((response, request) => {
      expect(request.url).toBe('/v1/changes?key=..&snapshot=true')
      const pair = event('pair', { key: '..', value: '1', commit_ts: 5 }, 's.20.Li4')
      response.write(pair + event('snapshot_end', { ts: 20 }, 20) + txn(30, '..') + resolved(31))
    }, options)
    expect(await take(server.db.watch('..'), 2)).toEqual([
      { value: '1', commitTs: 5 },
      { value: 'v', commitTs: 30 },
    ])
  })
})

test('options that contradict each other, and positions that are none, are refused', async () => {
  const { db } = await serve(() => {})
  const wrong = [
    ...[{ prefix: 'a', start: 'b' }, { keys: [] }, { prefixes: Array(101).fill('a') }],
    ...[
      { sinceTs: 1, position: '1' },
      { sinceTs: 1, snapshot: true },
      { consumer: 'c', prefix: 'a' },
    ],
    ...['', 's.1', 's.1.', '1.YQ', 's.1.Y', 's.1.YR', '99999999999999999', 's.0.YQ', '-1'].map((position) => ({
      position,
    })),
    ...[{ since: 1 }, { heartbeatMs: 99 }],
  ]
  for (const options of wrong)
    await expect(take(db.changes(options as never), 1), JSON.stringify(options)).rejects.toThrow(TypeError)
  expect(parseFeedPosition('0')).toEqual({ ts: 0 })
  expect(parseFeedPosition('s.1.YQ')).toEqual({ ts: 1, snapshotKey: Uint8Array.of(97) })
})
