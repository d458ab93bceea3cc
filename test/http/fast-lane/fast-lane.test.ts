import { once } from 'node:events'
import { Agent } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { LONG_ANSWER_BYTES } from '../../../src/limits.js'
import { TappedEngine } from '../../store/support.js'
import { type Headers, type Json, okBody, sendTo, type TestServer, testServers } from '../support.js'

const start = testServers()
const eventually = (check: () => void | Promise<void>): Promise<void> => vi.waitFor(check, { timeout: 30_000 })

const clients: Client[] = []
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.destroy()
})

/** A connection that keeps all that it has received. */
class Client {
  text = ''
  bytes = 0
  isClosed = false
  constructor(readonly socket: Socket) {
    clients.push(this)
    socket.setNoDelay(true).on('error', () => {})
    socket.on('data', (bytes) => {
      this.bytes += bytes.length
      this.text += bytes.toString('latin1')
    })
    socket.on('end', () => {
      this.isClosed = true
      socket.end()
    })
    socket.on('close', () => {
      this.isClosed = true
    })
  }
  static async open(port: number): Promise<Client> {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    await once(socket, 'connect')
    return new Client(socket)
  }
  get statuses(): number[] {
    return [...this.text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status))
  }
  async answers(count: number): Promise<number[]> {
    await eventually(() => expect(this.statuses.length).toBeGreaterThanOrEqual(count))
    return this.statuses
  }
  closed(): Promise<void> {
    return eventually(() => expect(this.isClosed).toBe(true))
  }
}

const get = (key: string): string => `GET /v1/kv/${key} HTTP/1.1\r\nHost: a\r\n\r\n`
const put = (key: string, value: string): string =>
  `PUT /v1/kv/${key} HTTP/1.1\r\nHost: a\r\nContent-Length: ${value.length}\r\n\r\n${value}`
const txn = (body: object): string => {
  const text = JSON.stringify(body)
  return `POST /v1/txn HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`
}

const lease = (name: string, body: object): string => {
  const text = JSON.stringify(body)
  return `PUT /v1/leases/${name} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`
}

/** Counts the requests that come through node:http. */
function countByNode(server: TestServer): () => number {
  let count = 0
  server.app.server.prependListener('request', () => count++)
  return () => count
}

async function inFlight(server: TestServer): Promise<Json> {
  return okBody(await server.get('/v1/status'))['overload'] as Json
}

describe('stays in the fast lane', () => {
  const body = JSON.stringify({ ops: [{ op: 'put', key: 'b', value: '1' }] })

  test('fetch', { tags: ['long'] }, async () => {
    const server = await start({ browserGuard: { loopbackNamesOnly: true } })
    const url = `http://127.0.0.1:${await server.listen()}/v1`
    const byNode = countByNode(server)
    const headers = { 'content-type': 'application/json' }
    for (const [path, init] of [
      ['/kv/a', { method: 'PUT', body: 'value' }],
      ['/kv/a', {}],
      ['/kv/a', { method: 'DELETE' }],
      ['/txn', { method: 'POST', headers, body }],
      ['/leases/l', { method: 'PUT', headers, body: '{"holder":"h","ttl_ms":60000}' }],
      ['/leases/l', { method: 'PUT', headers, body: '{"holder":"h","ttl_ms":60000}' }],
    ] as const) {
      const answer = await fetch(url + path, init)
      expect(answer.status).toBe(200)
      await answer.arrayBuffer()
    }
    expect(byNode()).toBe(0)
  })

  test("Node's client with an agent", { tags: ['long'] }, async () => {
    const server = await start()
    const port = await server.listen()
    const byNode = countByNode(server)
    const agent = new Agent({ keepAlive: true })
    for (const [method, path, text, type] of [
      ['PUT', '/v1/kv/a', 'value', 'text/plain'],
      ['GET', '/v1/kv/a', undefined, undefined],
      ['POST', '/v1/txn', body, 'application/json'],
      ['PUT', '/v1/leases/l', '{"holder":"h","ttl_ms":60000}', 'application/json'],
    ] as const) {
      const headers: Headers = type === undefined ? {} : { 'content-type': type }
      expect(await sendTo({ port, agent }, method, path, headers, text)).toMatchObject({ status: 200 })
    }
    agent.destroy()
    expect(byNode()).toBe(0)
  })
})

test('a lease is granted, renewed and refused as by node:http, and counted', async () => {
  const server = await start()
  const byNode = countByNode(server)
  const client = await Client.open(await server.listen())
  const h = { holder: 'h', ttl_ms: 60_000 }
  client.socket.write(lease('l', h))
  await client.answers(1)
  client.socket.write(lease('l', h) + lease('l', { holder: 'other', ttl_ms: 60_000 }) + lease('l', { ...h, fence: 5 }))
  expect(await client.answers(4)).toEqual([200, 200, 423, 412])
  expect(byNode()).toBe(0)
  expect(server.database.leases.summary()).toMatchObject({ held: 1, grants: 1, renewals: 1 })
  const { body } = await server.get('/metrics')
  const counted = [...body.matchAll(/_duration_seconds_count\{(.*route="\/v1\/leases\/:name".*)\} (\d+)/g)]
  const byStatus = counted.map(([, labels, count]) => [
    /(?:code|status)="(\d+)"/.exec(labels ?? '')?.[1],
    Number(count),
  ])
  expect(Object.fromEntries(byStatus)).toEqual({ 200: 2, 423: 1, 412: 1 })
})

describe('node:http gets a connection', () => {
  test('at the first request outside the subset, and in the order of the requests', async () => {
    const server = await start()
    const port = await server.listen()
    const byNode = countByNode(server)
    const client = await Client.open(port)
    client.socket.write(put('a', '1') + get('b'))
    expect(await client.answers(2)).toEqual([200, 404])
    expect(byNode()).toBe(0)
    client.socket.write(`${get('a') + get('a')}GET /v1/kv/a?ts=1 HTTP/1.1\r\nHost: a\r\n\r\n${get('a')}`)
    expect(await client.answers(6)).toEqual([200, 404, 200, 200, 404, 200])
    expect(byNode()).toBe(2)
    client.socket.write(get('a'))
    await client.answers(7)
    expect(byNode()).toBe(3)
  })

  test.each([
    ['a bad escape', 'GET /v1/kv/%zz HTTP/1.1\r\nHost: a\r\n\r\n', 400],
    ['a key that is too long', get('k'.repeat(5000)), 413],
    ['JSON that is none', txn({}).replace('{}', '{]'), 400],
    ['an unknown field', txn({ nope: 1 }), 400],
    ['a condition without one', txn({ checks: [{ key: 'a' }] }), 400],
    ['a name that means a prototype', txn({ ops: [] }).replace('{"ops":[]}', '{"__proto__":1}'.slice(0, 10)), 400],
    ['a lease that is waited for', lease('l', { holder: 'h', ttl_ms: 60_000, wait_ms: 5 }), 200],
    ['a lease for no time', lease('l', { holder: 'h', ttl_ms: 0 }), 400],
    ['a name that no lease may have', lease('a%20b', { holder: 'h', ttl_ms: 60_000 }), 400],
    ['many ops', txn({ ops: Array.from({ length: 1100 }, () => ({})) }), 400],
  ])('with a request that it has to judge: %s', async (_, text, status) => {
    const server = await start()
    const port = await server.listen()
    const byNode = countByNode(server)
    const client = await Client.open(port)
    client.socket.write(text)
    expect(await client.answers(1)).toEqual([status])
    expect(byNode()).toBe(1)
  })

  test('with a caller whom it has to refuse', { tags: ['long'] }, async () => {
    const server = await start({ tokens: 'ro abcdefghijklmnop\nrw qrstuvwxyzabcdef prefix=mine/' })
    const port = await server.listen()
    const byNode = countByNode(server)
    const as = (token: string, text: string) => text.replace('Host: a', `Host: a\r\nAuthorization: Bearer ${token}`)
    const writer = await Client.open(port)
    const h = { holder: 'h', ttl_ms: 60_000 }
    writer.socket.write(as('qrstuvwxyzabcdef', put('mine/a', '1')) + as('qrstuvwxyzabcdef', get('mine/a')))
    writer.socket.write(as('qrstuvwxyzabcdef', lease('mine/l', h)))
    expect(await writer.answers(3)).toEqual([200, 200, 200])
    expect(byNode()).toBe(0)
    for (const [text, status] of [
      [get('a'), 401],
      [as('nobody-knows-this', get('a')), 401],
      [as('abcdefghijklmnop', put('a', '1')), 403],
      [as('qrstuvwxyzabcdef', get('yours/a')), 403],
      [lease('mine/l', h), 401],
      [as('abcdefghijklmnop', lease('mine/l', h)), 403],
      [as('qrstuvwxyzabcdef', lease('yours/l', h)), 403],
      [as('qrstuvwxyzabcdef', txn({ ops: [{ op: 'put', key: 'yours/a', value: '' }] })), 403],
    ] as const) {
      const client = await Client.open(port)
      client.socket.write(text)
      expect(await client.answers(1)).toEqual([status])
    }
    expect(byNode()).toBe(8)
  })

  test('with a request in three pieces, and not in two', async () => {
    const server = await start()
    const port = await server.listen()
    const byNode = countByNode(server)
    const accepted = once(server.app.server, 'connection')
    const client = await Client.open(port)
    const [socket] = (await accepted) as [Socket]
    const text = put('a', 'value')
    socket.emit('data', Buffer.from(text.slice(0, 20)))
    socket.emit('data', Buffer.from(text.slice(20) + text.slice(0, 30)))
    expect(await client.answers(1)).toEqual([200])
    socket.emit('data', Buffer.from(text.slice(30)))
    expect(await client.answers(2)).toEqual([200, 200])
    expect(byNode()).toBe(0)
    socket.emit('data', Buffer.from(text.slice(0, 20)))
    socket.emit('data', Buffer.from(text.slice(20, 30)))
    client.socket.write(text.slice(30))
    expect(await client.answers(3)).toEqual([200, 200, 200])
    expect(byNode()).toBe(1)
  })

  test.each([
    ['the beginning of a request', get('a').slice(0, 30)],
    ['a whole request and the beginning of another', get('a') + get('a').slice(0, 30)],
  ])('when only %s has come for a while: its time-outs hold', { tags: ['long'] }, async (_, text) => {
    const server = await start({ limits: { headerMsMax: 200 } })
    const client = await Client.open(await server.listen())
    client.socket.write(text)
    await client.closed()
    expect(client.statuses).toEqual(text.startsWith(get('a')) ? [404, 408] : [408])
  })
})

describe('a connection', () => {
  test('that was opened in advance stays in the lane', { tags: ['long'] }, async () => {
    const server = await start({ limits: { idleMsMax: 80 } })
    const byNode = countByNode(server)
    const port = await server.listen()
    const [early, idle] = await Promise.all([Client.open(port), Client.open(port)])
    idle.socket.write(get('a'))
    await idle.closed() // So the lane has looked at its connections more than twice.
    early.socket.write(get('a'))
    expect(await early.answers(1)).toEqual([404])
    expect(byNode()).toBe(0)
  })

  test('on which nothing comes is closed in the time that headers have', { tags: ['long'] }, async () => {
    const server = await start({ limits: { headerMsMax: 200 } })
    const client = await Client.open(await server.listen())
    await client.closed()
    expect(client.text).toBe('')
  })

  test('is closed when it is idle for longer than allowed', { tags: ['long'] }, async () => {
    const server = await start({ limits: { idleMsMax: 200 } })
    const client = await Client.open(await server.listen())
    client.socket.write(get('a'))
    await client.closed()
    expect(client.statuses).toEqual([404])
  })

  test('sends the answers in the order of the requests, however late one is', { tags: ['long'] }, async () => {
    const engine = new TappedEngine()
    let land = (): void => {}
    const landing = new Promise<void>((resolve) => {
      land = resolve
    })
    const server = await start({ openEngine: engine.open })
    await server.put('b', 'old')
    engine.onWrite = async (_, write) => {
      await landing
      return write()
    }
    const client = await Client.open(await server.listen())
    const many = Array.from({ length: 500 }, (_, i) => get(`x${i}`)).join('')
    client.socket.write(put('a', '1') + get('b') + many)
    await eventually(async () => expect((await inFlight(server))['queued_batches']).toBeGreaterThan(0))
    expect(client.statuses).toEqual([])
    land()
    expect(await client.answers(502)).toEqual([200, 200, ...Array.from({ length: 500 }, () => 404)])
    expect(await inFlight(server)).toMatchObject({ requests: 0, body_bytes: 0 })
  })

  test('answers all that was asked before the client ended its side', async () => {
    const server = await start()
    const client = await Client.open(await server.listen())
    client.socket.end(put('a', '1') + get('b'))
    await client.closed()
    expect(client.statuses).toEqual([200, 404])
    const broken = await Client.open(addressOf(server))
    broken.socket.end(get('c') + put('a', '12345').slice(0, -2))
    await broken.closed()
    expect(broken.statuses).toEqual([404, 400])
  })

  test('gives node:http the end of the client too, when that came while an answer was awaited', async () => {
    const engine = new TappedEngine()
    let land = (): void => {}
    const server = await start({ openEngine: engine.open })
    const port = await server.listen()
    const conditional = put('b', '1').replace('Host: a', 'Host: a\r\nIf-None-Match: *')
    for (const [rest, statuses] of [
      ['GET /v1/kv/\x01 HTTP/1.1\r\n\r\n', [200, 400]],
      [conditional, [200, 200]],
    ] as const) {
      const landing = new Promise<void>((resolve) => {
        land = resolve
      })
      engine.onWrite = async (_, write) => {
        await landing
        return write()
      }
      const accepted = once(server.app.server, 'connection')
      const client = await Client.open(port)
      const [socket] = (await accepted) as [Socket]
      const ended = once(socket, 'end')
      client.socket.end(put('a', '1') + rest)
      await ended
      land()
      await client.closed()
      expect(client.statuses).toEqual(statuses)
    }
    await eventually(async () => expect((await server.get('/v1/kv/b')).statusCode).toBe(200))
  })

  test('whose answer cannot be written, in front of a request for node:http, is only closed', async () => {
    const server = await start()
    const accepted = once(server.app.server, 'connection')
    const client = await Client.open(await server.listen())
    const [socket] = (await accepted) as [Socket]
    vi.spyOn(socket, 'write').mockImplementation(() => {
      socket.destroy(new Error('write EPIPE')) // As Node does: the event comes later.
      return false
    })
    const failed = vi.fn()
    process.once('uncaughtException', failed)
    client.socket.write(`${put('a', '1')}GET /v1/kv/a?ts=1 HTTP/1.1\r\nHost: a\r\n\r\n`)
    await client.closed()
    process.off('uncaughtException', failed)
    expect(failed).not.toHaveBeenCalled()
  })

  test('that hangs up leaves nothing behind', { tags: ['long'] }, async () => {
    const server = await start()
    await server.lock(server.database.store.now(), ['primary', 'a'], { lock_ttl: 60_000 })
    const client = await Client.open(await server.listen())
    client.socket.write(get('a') + put('a', '1') + txn({ ops: [{ op: 'increment', key: 'a' }] }))
    await eventually(async () => expect(await inFlight(server)).toMatchObject({ requests: 1 }))
    client.socket.resetAndDestroy()
    await eventually(async () => expect(await inFlight(server)).toMatchObject({ requests: 0, body_bytes: 0 }))
  })

  test('whose client ends its side waits for locks all the same', { tags: ['long'] }, async () => {
    const server = await start()
    const lockTs = server.database.store.now()
    await server.lock(lockTs, ['a'], { lock_ttl: 60_000 })
    const client = await Client.open(await server.listen())
    client.socket.end(put('a', '1') + put('a', '2') + get('a'))
    await eventually(async () => expect(await inFlight(server)).toMatchObject({ requests: 1 }))
    await server.ok('rollback', { keys: ['a'], start_ts: lockTs })
    await client.closed()
    expect(client.statuses).toEqual([200, 200, 200])
    expect(client.text.endsWith('2')).toBe(true)
  })

  test('whose client takes no answers is not read on', { tags: ['long'] }, async () => {
    const server = await start()
    await server.put('long', 'v'.repeat(LONG_ANSWER_BYTES - 1))
    const accepted = once(server.app.server, 'connection')
    const client = await Client.open(await server.listen())
    client.socket.pause()
    client.socket.write(get('long').repeat(1500))
    const [socket] = (await accepted) as [Socket]
    await eventually(() => expect(socket.isPaused()).toBe(true))
    expect(socket.writableLength).toBeLessThan(70 * LONG_ANSWER_BYTES)
    client.socket.resume()
    await eventually(() => expect(client.bytes).toBeGreaterThan(1500 * LONG_ANSWER_BYTES))
  })

  test('whose client stalls in a long answer is cut off, and counted until then', { tags: ['long'] }, async () => {
    const server = await start({ limits: { stalledMsMax: 300 } })
    const value = 'v'.repeat(1024 * 1024)
    await server.put('long', value)
    const byNode = countByNode(server)
    const port = await server.listen()
    const client = await Client.open(port)
    client.socket.write(get('long'))
    await eventually(() => expect(client.text.endsWith(value)).toBe(true))
    expect(server.database.store.answers.heldBytes).toBe(0)

    const stalling = await Client.open(port)
    stalling.socket.pause()
    stalling.socket.write(get('long').repeat(10))
    await eventually(() => expect(server.database.store.answers.heldBytes).toBeGreaterThan(0))
    await eventually(() => expect(server.database.store.answers.heldBytes).toBe(0))
    expect(byNode()).toBe(0)
    stalling.socket.resume()
    await stalling.closed()
    expect(stalling.text.length).toBeLessThan(10 * value.length)
  })

  test.each(['json', 'msgpack'])('gives back what a long answer in %s counted', async (format) => {
    const server = await start()
    await server.put('long', 'v'.repeat(LONG_ANSWER_BYTES))
    const byNode = countByNode(server)
    const client = await Client.open(await server.listen())
    const text = txn({ ops: [{ op: 'get', key: 'long' }] })
    client.socket.write(text.replace('Host: a', `Host: a\r\nAccept: application/${format}`))
    expect(await client.answers(1)).toEqual([200])
    await eventually(() => expect(server.database.store.answers.heldBytes).toBe(0))
    expect(byNode()).toBe(0)
  })

  test('gets a long answer in chunks, and the answers behind it after that', async () => {
    const server = await start()
    const value = 'v'.repeat(300_000)
    await server.put('long', value)
    const byNode = countByNode(server)
    const client = await Client.open(await server.listen())
    client.socket.write(txn({ ops: [{ op: 'get', key: 'long' }] }) + get('a'))
    expect(await client.answers(2)).toEqual([200, 404])
    const [head = '', body = ''] = client.text.split('\r\n\r\n', 2)
    expect(head).toMatch(/Transfer-Encoding: chunked$/)
    expect(body.replace(/[\da-f]+\r\n([^\r]*)\r\n|0$/g, '$1')).toContain(`"value":"${value}"`)
    expect(server.database.store.answers.heldBytes).toBe(0)
    expect(byNode()).toBe(0)
  })

  test('that hangs up in a long answer leaves nothing behind', async () => {
    const server = await start()
    await server.put('long', 'v'.repeat(1_000_000))
    const client = await Client.open(await server.listen())
    client.socket.pause()
    client.socket.write(txn({ ops: Array.from({ length: 30 }, () => ({ op: 'get', key: 'long' })) }))
    await eventually(() => expect(server.database.store.answers.heldBytes).toBeGreaterThan(0))
    client.socket.destroy()
    await eventually(() => expect(server.database.store.answers.heldBytes).toBe(0))
    expect(await inFlight(server)).toMatchObject({ requests: 0, body_bytes: 0 })
  })

  test('is shed as by node:http, and read more slowly', { tags: ['long'] }, async () => {
    const server = await start({ limits: { requestsMax: 1 } })
    await server.lock(server.database.store.now(), ['a'], { lock_ttl: 60_000 })
    const port = await server.listen()
    const waiting = await Client.open(port)
    waiting.socket.write(put('a', '1'))
    const client = await Client.open(port)
    await eventually(async () => {
      client.socket.write(get('b'))
      expect((await client.answers(1)).at(-1)).toBe(503)
    })
    expect(client.text).toMatch(/retry-after: 1\r\n[\s\S]*"code":"overloaded"/)
  })
})

describe('closing', () => {
  test('answers what is in flight with connection: close, and closes idle connections', async () => {
    const engine = new TappedEngine()
    let land = (): void => {}
    const landing = new Promise<void>((resolve) => {
      land = resolve
    })
    const server = await start({ openEngine: engine.open })
    const port = await server.listen()
    const [idle, unused, busy] = await Promise.all([Client.open(port), Client.open(port), Client.open(port)])
    idle.socket.write(get('a'))
    await idle.answers(1)
    engine.onWrite = async (_, write) => {
      await landing
      return write()
    }
    busy.socket.write(put('a', '1') + put('b', '1'))
    await eventually(async () => expect((await inFlight(server))['queued_batches']).toBe(1))
    const closed = server.app.close()
    await Promise.all([idle.closed(), unused.closed()])
    expect(busy.text).toBe('')
    land()
    await busy.closed()
    expect(busy.statuses).toEqual([200, 200])
    expect([...busy.text.matchAll(/connection: .*/gi)].map(([line]) => line)).toEqual([
      'Connection: keep-alive',
      'Connection: close',
    ])
    await closed
  })

  test('node:http answers what has not arrived as a whole, or comes later', async () => {
    const server = await start()
    const port = await server.listen()
    const accepted = once(server.app.server, 'connection')
    const partly = await Client.open(port)
    const [socket] = (await accepted) as [Socket]
    const text = put('a', '12345')
    socket.emit('data', Buffer.from(text + text.slice(0, -2)))
    await partly.answers(1)
    const closed = server.app.close()
    partly.socket.write(text.slice(-2))
    await partly.closed()
    expect(partly.statuses).toEqual([200, 200])
    expect(partly.text.match(/^connection: close/gim)).toHaveLength(1)
    await closed
  })

  test('closeAllConnections closes those of the fast lane too', async () => {
    const server = await start()
    const client = await Client.open(await server.listen())
    client.socket.write(get('a'))
    await client.answers(1)
    server.app.server.closeAllConnections()
    await client.closed()
  })
})

function addressOf(server: TestServer): number {
  const address = server.app.server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
