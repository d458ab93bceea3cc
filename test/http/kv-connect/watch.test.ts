import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import Fastify from 'fastify'
import { afterEach, expect, test } from 'vitest'
import { EventStream } from '../../../src/http/connections/event-stream.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { type StartOptions, type TestServer, testServers } from '../support.js'
import { type EntryOf, entryOf, fieldsOf, KvClient, set, watchBody } from './kv-client.js'

const start = testServers()
const open = (options: StartOptions = {}): Promise<TestServer> => start({ kvConnect: true, ...options })

const sent: ClientRequest[] = []
afterEach(() => {
  for (const one of sent.splice(0)) one.destroy()
})

/** The frames of a watch as they come. */
class Frames {
  readonly frames: (EntryOf | undefined)[][] = []
  isOver = false
  #rest = Buffer.alloc(0)

  constructor(readonly answer: IncomingMessage) {
    answer.on('data', (chunk: Buffer) => this.#take(chunk))
    answer.on('error', () => {})
    answer.on('close', () => {
      this.isOver = true
    })
  }

  #take(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk])
    while (this.#rest.length >= 4 && this.#rest.length >= 4 + this.#rest.readUInt32LE()) {
      const end = 4 + this.#rest.readUInt32LE()
      const output = fieldsOf(this.#rest.subarray(4, end))
      this.#rest = this.#rest.subarray(end)
      expect(output.get(1)).toEqual([1])
      const keys = (output.get(2) ?? []).map((key) => fieldsOf(key as Uint8Array))
      for (const key of keys) expect(key.get(1)).toEqual([1])
      this.frames.push(keys.map((key) => key.get(2)?.map((entry) => entryOf(entry as Uint8Array))[0]))
    }
  }

  get last(): readonly (string | undefined)[] | undefined {
    return this.frames.at(-1)?.map((entry) => entry?.value)
  }
}

async function watch(kv: KvClient, keys: readonly string[], token?: string): Promise<Frames> {
  const headers = {
    'x-denokv-version': '3',
    'x-denokv-database-id': await kv.id(),
    ...(token && { authorization: `Bearer ${token}` }),
  }
  const path = `/kv-connect/${kv.name}/watch`
  const to = { host: '127.0.0.1', port: await kv.server.listen(), method: 'POST', path, headers }
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const one = request(to, resolve)
    sent.push(one)
    one.on('error', reject)
    one.end(watchBody(keys))
  })
  expect(answer.statusCode).toBe(200)
  expect(answer.headers['content-type']).toBe('application/octet-stream')
  return new Frames(answer)
}

test('first the state, then each change, at one moment', async () => {
  const kv = new KvClient(await open())
  await kv.write([set('a', '1')])
  const seen = await watch(kv, ['a', 'b', 'a'])
  await expect.poll(() => seen.last).toEqual(['1', undefined, '1'])
  await kv.write([set('b', '2'), set('other', '2')])
  await expect.poll(() => seen.last).toEqual(['1', '2', '1'])
  for (let i = 0; i < 20; i++) await kv.write([set('a', `${i}`), set('b', `${i}`)])
  await kv.write([{ key: 'a', type: 2 }])
  await expect.poll(() => seen.last).toEqual([undefined, '19', undefined])
  for (const [a, b] of seen.frames.slice(2, -1))
    expect(a).toMatchObject({ value: b?.value, versionstamp: b?.versionstamp })
  expect(seen.frames.length).toBeLessThanOrEqual(23)
})

test('an expiry is a change', async () => {
  const kv = new KvClient(await open())
  await kv.write([set('a', '1', { expireAtMs: Date.now() + 300 })])
  const seen = await watch(kv, ['a'])
  await expect.poll(() => seen.last).toEqual([undefined])
})

test('a lock of another transaction is waited for', async () => {
  const server = await open()
  const kv = new KvClient(server)
  await kv.write([set('a', '1')])
  const ts = server.database.store.now()
  await server.lock(ts, [`kv-connect/${kv.name}/b`], { lock_ttl: 60_000 })
  const seen = await watch(kv, ['a', 'b'])
  await server.ok('rollback', { keys: [`kv-connect/${kv.name}/b`], start_ts: ts })
  await expect.poll(() => seen.last).toEqual(['1', undefined])
})

test('a silent watch is kept alive by frames without content', async () => {
  const app = Fastify()
  let stream: EventStream | undefined
  app.post('/', (_request, reply) => {
    const budget = new AnswerBudget(DEFAULT_LIMITS)
    stream = new EventStream(reply, { format: 'frames', budget, caller: undefined, stalledMsMax: 1000 })
    return reply
  })
  const answering = app.inject({ method: 'POST', url: '/' })
  await expect.poll(() => stream).toBeDefined()
  stream?.beat()
  stream?.end()
  expect((await answering).rawPayload).toEqual(Buffer.alloc(4))
  await app.close()
})

test('a watch ends with its token, and when the server closes', async () => {
  const server = await open({ tokens: 'rw a-token-of-all-keys-0' })
  const kv = new KvClient(server, 'db', { authorization: 'Bearer a-token-of-all-keys-0' })
  const seen = await watch(kv, ['a'], 'a-token-of-all-keys-0')
  await expect.poll(() => seen.last).toEqual([undefined])
  const closing = server.close()
  await expect.poll(() => seen.isOver).toBe(true)
  await closing
})

test('there is a bound on open watches, and clients that go leave nothing behind', async () => {
  const server = await open({ limits: { watchesMax: 1 }, fastLane: false })
  const kv = new KvClient(server)
  const seen = await watch(kv, ['a'])
  await expect.poll(() => seen.last).toEqual([undefined])
  const refused = await kv.call('watch', watchBody(['a']))
  expect([refused.statusCode, refused.headers['retry-after']]).toEqual([503, '1'])
  seen.answer.destroy()
  await expect
    .poll(() =>
      watch(kv, ['a']).then(
        () => 'open',
        () => 'refused',
      ),
    )
    .toBe('open')
})

test.each([
  { name: 'ten keys', keys: Array.from({ length: 10 }, (_, i) => `${i}`), status: 200 },
  { name: 'eleven keys', keys: Array.from({ length: 11 }, (_, i) => `${i}`), status: 413 },
  { name: 'a long key', keys: ['k'.repeat(2049)], status: 413 },
])('$name: $status', async ({ keys, status }) => {
  const kv = new KvClient(await open())
  if (status === 200) {
    const seen = await watch(kv, keys)
    await expect.poll(() => seen.last?.length).toBe(10)
  } else expect((await kv.call('watch', watchBody(keys))).statusCode).toBe(status)
})
