import { Agent, type IncomingMessage, request } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startServer, type TestServer } from '../support.js'
import { KvClient, readBody, set, writeBody } from './kv-client.js'

/** The fast lane answers as node:http does, to the byte. */

let server: TestServer
let id: string
let stamp: Buffer
const agent = new Agent({ keepAlive: true, maxSockets: 1 })

beforeAll(async () => {
  server = await startServer({ kvConnect: true, limits: { keyBytesMax: 100 } })
  const kv = new KvClient(server)
  id = await kv.id()
  stamp = Buffer.from(String(await kv.write([set('k', 'v'), set('long', 'v'.repeat(60_000)), set('n', '1')])), 'hex')
})
afterAll(async () => {
  agent.destroy()
  await server.close()
})

interface Whole {
  readonly status: number | undefined
  readonly headers: readonly string[]
  readonly body: string
  readonly isFast: boolean
}

/** @param extra a header that the fast lane does not know hands the connection to node:http. */
async function send(call: string, body: Uint8Array, headers: Record<string, string>, isFast: boolean): Promise<Whole> {
  const port = await server.listen()
  const extra = isFast ? {} : { 'x-other': '1' }
  const options = {
    port,
    host: '127.0.0.1',
    method: 'POST',
    path: `/kv-connect/db/${call}`,
    agent: isFast ? agent : undefined,
  }
  const meant = { 'x-denokv-version': '3', 'x-denokv-database-id': id, connection: 'keep-alive' }
  let isOfNode = false
  const seen = ({ url }: IncomingMessage): void => {
    isOfNode ||= url === options.path
  }
  server.app.server.on('request', seen)
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const all = { ...meant, ...headers, ...extra, 'content-length': body.length }
    request({ ...options, headers: all }, resolve)
      .on('error', reject)
      .end(body)
  })
  const chunks: Buffer[] = []
  for await (const chunk of answer) chunks.push(chunk as Buffer)
  server.app.server.off('request', seen)
  const shown = answer.rawHeaders.map((text, i) => (answer.rawHeaders[i - 1] === 'Date' ? '' : text))
  return {
    status: answer.statusCode,
    headers: shown,
    body: Buffer.concat(chunks).toString('latin1'),
    isFast: !isOfNode,
  }
}

const one = (key: string) => readBody([{ start: key, end: `${key}\0` }])
const sum = { data: Buffer.alloc(8), encoding: 2 }

test.each([
  { name: 'a key', call: 'snapshot_read', body: one('k') },
  { name: 'an absent key', call: 'snapshot_read', body: one('none') },
  { name: 'a long value', call: 'snapshot_read', body: one('long') },
  { name: 'the next key', call: 'snapshot_read', body: readBody([{ start: 'j', end: '\xff' }]) },
  { name: 'a range', call: 'snapshot_read', body: readBody([{ start: '', end: '\xff', limit: 10, reverse: true }]) },
  {
    name: 'two ranges',
    call: 'snapshot_read',
    body: readBody([
      { start: 'k', end: 'l' },
      { start: 'z', end: 'a' },
    ]),
  },
  { name: 'nothing', call: 'snapshot_read', body: readBody([]) },
  { name: 'a failed check', call: 'atomic_write', body: () => writeBody([set('k', 'w')], [{ key: 'k' }]) },
  {
    name: 'a check of its own key',
    call: 'atomic_write',
    body: () => writeBody([], [{ key: 'n', versionstamp: stamp }, { key: 'n' }]),
  },
  { name: 'a refused sum', call: 'atomic_write', body: writeBody([{ key: 'n', type: 3, value: sum }]) },
])('$name', async ({ call, body }) => {
  const bytes = typeof body === 'function' ? body() : body
  const [fast, slow] = [await send(call, bytes, {}, true), await send(call, bytes, {}, false)]
  expect([fast.isFast, slow.isFast]).toEqual([true, false])
  expect({ ...fast, isFast: false }).toEqual(slow)
})

test.each<{
  readonly name: string
  readonly call?: string
  readonly body?: Uint8Array
  readonly headers?: Record<string, string>
}>([
  { name: 'a message that is none', body: Buffer.from([1, 2, 3]) },
  { name: 'a long key', body: writeBody([set('k'.repeat(101), '')]) },
  { name: 'the id of another database', headers: { 'x-denokv-database-id': '1' } },
  { name: 'another version', headers: { 'x-denokv-version': '9' } },
  { name: 'an unknown call', call: 'snapshot_write' },
])('$name is refused by node:http alone', async ({ call = 'atomic_write', body = writeBody([]), headers = {} }) => {
  const [fast, slow] = [await send(call, body, headers, true), await send(call, body, headers, false)]
  expect(fast).toEqual(slow)
  expect(fast.isFast).toBe(false)
  expect(fast.status).toBeGreaterThanOrEqual(400)
  agent.destroy() // The connection has left the lane.
})

test('a write has the versionstamp of its commit', async () => {
  const body = writeBody([set('written', 'v')])
  const { isFast, headers, body: answer } = await send('atomic_write', body, {}, true)
  const kv = new KvClient(server)
  const found = await kv.get('written')
  expect(isFast).toBe(true)
  expect(Buffer.from(answer, 'latin1').toString('hex')).toContain(found?.versionstamp)
  expect({ ...(await send('atomic_write', body, {}, false)), body: '', isFast }).toMatchObject({ headers })
})
