import { once } from 'node:events'
import type { Socket } from 'node:net'
import { describe, expect, test, vi } from 'vitest'
import { asked, askedJson, RawClient } from '../raw-dialogue.js'
import { testServers } from '../support.js'

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
  test.each(REQUESTS)('answers what has arrived in part: %j', async (request) => {
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

  test('closes connections on which nothing has arrived', async () => {
    const server = await start({ fastLane })
    const client = await RawClient.open(await server.listen())
    await server.app.close()
    expect(await client.closed()).toEqual([])
  })
})
