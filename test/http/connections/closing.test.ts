import { once } from 'node:events'
import type { Socket } from 'node:net'
import { describe, expect, test, vi } from 'vitest'
import { TappedEngine } from '../../store/support.js'
import { asked, askedJson, RawClient } from '../raw-dialogue.js'
import { okBody, testServers } from '../support.js'

const start = testServers()
const eventually = (check: () => void | Promise<void>): Promise<void> => vi.waitFor(check, { timeout: 30_000 })
const put = (key: string, headers: readonly string[] = []): string => asked(`PUT /v1/kv/${key}`, headers, 'value')
const REQUESTS = [
  put('a'),
  put('a', ['X-Any: 1']),
  `${asked('PUT /v1/kv/a', ['Transfer-Encoding: chunked'])}5\r\nvalue\r\n0\r\n\r\n`,
  askedJson('POST /v1/txn', { ops: [{ op: 'put', key: 'a', value: 'value' }] }),
  asked('GET /v1/kv?limit=1'),
  asked('GET /v1/kv/none?lock_wait_ms=1').replace('GET', 'HEAD'),
]

describe.each([true, false])('with the fast lane: %s, a server that closes', (fastLane) => {
  test.each(REQUESTS)('answers what has arrived in part: %j', { tags: ['long'] }, async (request) => {
    for (const before of ['', put('before')])
      for (const at of [
        1,
        5,
        request.indexOf('HTTP/') + 3,
        request.indexOf('\r\n') + 8,
        request.indexOf('\r\n\r\n') + 2,
        -1,
      ]) {
        const server = await start({ fastLane })
        const port = await server.listen()
        const accepted = once(server.app.server, 'connection')
        const client = await RawClient.open(port)
        const [socket] = (await accepted) as [Socket]
        await client.write(before)
        if (before !== '') await client.answered(1)
        const part = request.slice(0, at)
        await client.write(part)
        await eventually(() => expect(socket.bytesRead).toBe(before.length + part.length))
        const closing = server.app.close()
        await client.write(request.slice(at))
        await client.closed()
        const heads = client.text.match(/^HTTP\/1\.1 .*|^connection: .*/gim) ?? []
        const status = request.startsWith('HEAD') ? 404 : 200
        expect([at, heads.at(-2), heads.at(-1)?.toLowerCase()]).toEqual([
          at,
          expect.stringContaining(`HTTP/1.1 ${status}`),
          'connection: close',
        ])
        await closing
      }
  })

  test('answers requests that wait behind others of their connection', async () => {
    const engine = new TappedEngine()
    let land = (): void => {}
    const landing = new Promise<void>((resolve) => {
      land = resolve
    })
    const server = await start({ fastLane, openEngine: engine.open })
    const port = await server.listen()
    engine.onWrite = async (_, write) => {
      await landing
      return write()
    }
    const dialogues = [
      [put('a'), put('b'), asked('GET /v1/kv/b')],
      [put('a'), put('b', ['X-Any: 1']), asked('GET /v1/kv/b')],
      [put('a', ['X-Any: 1']), put('b'), asked('GET /v1/kv/b'), put('c')],
    ]
    const clients = await Promise.all([...dialogues, []].map(() => RawClient.open(port)))
    for (const [i, client] of clients.entries())
      await client.write(dialogues[i]?.join('') ?? put('a') + put('c').slice(0, -2))
    await eventually(async () => {
      const { requests } = okBody(await server.get('/v1/status'))['overload'] as { requests: number }
      expect(requests).toBe(4)
    })
    const closing = server.app.close()
    await clients[3]?.write(put('c').slice(-2))
    land()
    for (const [i, client] of clients.entries()) {
      const answers = await client.closed()
      expect([i, ...answers.map(({ status }) => status)]).toEqual([i, ...(dialogues[i] ?? ['', '']).map(() => 200)])
      const said = answers.map(({ head }) => /^connection: close/im.test(head))
      expect(said).toEqual(said.map((_, at) => at === said.length - 1))
    }
    await closing
  })

  test('closes connections on which nothing has arrived', async () => {
    const server = await start({ fastLane })
    const client = await RawClient.open(await server.listen())
    await server.app.close()
    expect(await client.closed()).toEqual([])
  })
})
