import { Agent } from 'node:http'
import type { RouteOptions } from 'fastify'
import { expect, test } from 'vitest'
import { routesOf } from '../../src/http/routes/route-list.js'
import { createLog } from '../../src/server/log.js'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { TappedEngine } from '../store/support.js'
import type { Schema } from './hostile-requests.js'
import { type Headers, type Json, rawAnswer, rawText, sendTo, type TestServer, testServers } from './support.js'

/** Whoever reads the log sees nothing of what clients send or store, at whatever level, whatever goes wrong. */

const start = testServers()

const TOKEN = 'rw-token-SECRET-0123456789'
const KEY = 'key-SECRET'
const VALUE = 'value-SECRET'
const HEADERS: Headers = {
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
  'idempotency-key': 'idempotency-SECRET',
  'x-request-id': 'request-SECRET',
  'request-id': 'request-SECRET',
  'user-agent': 'agent-SECRET',
  referer: 'http://elsewhere.test/SECRET',
  cookie: 'SECRET=1',
  traceparent: '00-SECRET-01',
}

/** A body that a schema allows, with secrets wherever text goes. */
function bodyOf(schema: Schema, isFull: boolean): unknown {
  if (schema.bytes !== undefined) return schema.bytes === 'value' ? VALUE : KEY
  if (schema.enum !== undefined) return schema.enum[0]
  if (schema.type === 'boolean') return false
  if (schema.type === 'string') return 'text-SECRET'
  if (schema.type === 'array') return [bodyOf(schema.items ?? {}, isFull)]
  if (schema.type === 'integer' || schema.type === 'number')
    return Math.max(schema.minimum ?? 0, Math.min(7, schema.maximum ?? 7))
  const { properties = {}, required = [] } = schema
  const names = Object.keys(properties).filter((name) => isFull || required.includes(name))
  return Object.fromEntries(names.map((name) => [name, bodyOf(properties[name] as Schema, isFull)]))
}

/** What must not be in the log; ids and cursors that the server makes are added. */
class Secrets {
  readonly #all = new Set([
    'SECRET',
    ...[KEY, VALUE].flatMap((text) => [encoded(text, 'base64'), encoded(text, 'hex')]),
  ])

  add(secret: unknown): string {
    if (typeof secret !== 'string' || secret.length < 8) throw new Error(`that is no secret: ${secret}`)
    this.#all.add(secret).add(encodeURIComponent(secret))
    return secret
  }

  requireNoneIn(lines: readonly string[]): void {
    const log = lines.join('\n')
    const seen = [...this.#all].filter((secret) => log.includes(secret))
    expect(
      seen,
      lines.find((line) => seen.some((secret) => line.includes(secret))),
    ).toEqual([])
  }
}

const encoded = (text: string, as: 'base64' | 'hex') => Buffer.from(text).toString(as).replace(/=+$/, '').slice(0, -1)

interface Logged {
  readonly server: TestServer
  readonly port: number
  readonly lines: string[]
  readonly secrets: Secrets
}

async function startLogged(openEngine?: TappedEngine['open']): Promise<Logged> {
  const lines: string[] = []
  const log = createLog('trace', (line) => void lines.push(line))
  const server = await start({ log, slowMs: 1e-9, tokens: `rw ${TOKEN}\n`, ...(openEngine && { openEngine }) })
  return { server, port: await server.listen(), lines, secrets: new Secrets() }
}

/** Every route, rightly and wrongly called. @returns statuses by `METHOD route`. */
async function callAll({ server, port, secrets }: Logged): Promise<Map<string, number[]>> {
  const agent = new Agent({ keepAlive: true })
  const statuses = new Map<string, number[]>()
  for (const route of routesOf(server.app)) {
    const method = [route.method].flat()[0] as string
    for (const [path, headers, body] of await requestsOf(route, { port, agent }, secrets)) {
      const answer = await sendTo({ port, agent }, method, path, headers, body)
      const name = `${method} ${route.url}`
      statuses.set(name, [...(statuses.get(name) ?? []), answer.status])
    }
  }
  agent.destroy()
  return statuses
}

type Asked = readonly [path: string, headers: Headers, body: string | undefined]

async function requestsOf(route: RouteOptions, to: { port: number; agent: Agent }, secrets: Secrets): Promise<Asked[]> {
  const begun = await sendTo(to, 'POST', '/v1/txn/begin', HEADERS, '{}')
  const txn = begun.status === 201 ? secrets.add(JSON.parse(begun.body).txn) : 'txn-SECRET'
  const page = await sendTo(to, 'GET', '/v1/kv?limit=1', HEADERS)
  const cursor = page.status === 200 ? secrets.add(JSON.parse(page.body).cursor) : 'SECRET'
  const url = route.url.replace(':txn', txn).replace(/:\w+/, KEY)
  const { body: schema } = (route.schema ?? {}) as { body?: Schema }
  const bodies =
    schema === undefined ? [undefined, VALUE] : [false, true].map((full) => JSON.stringify(bodyOf(schema, full)))
  const query = (route.config?.query ?? []).map((name) => `${name}=SECRET`).join('&')
  return [
    ...bodies.map((body): Asked => [url, HEADERS, body]),
    [`${url}?prefix=${KEY}`, HEADERS, bodies[0]],
    [`${url}?${query}`, HEADERS, bodies[0]],
    [`${url}?cursor=${cursor}`, HEADERS, bodies[0]],
    [`${url}?cursor=${KEY}`, HEADERS, bodies[0]],
    [`${url}?SECRET`, HEADERS, bodies[0]],
    [url, { ...HEADERS, authorization: 'Bearer wrong-SECRET-token' }, bodies[0]],
    [url, { ...HEADERS, 'if-match': '"SECRET"', 'content-type': 'text/SECRET' }, '{"SECRET":'],
    [url, HEADERS, '{"SECRET": SECRET}'],
    [`/v1/%6bv/${KEY}`, HEADERS, VALUE],
    [`/v1/nope/${KEY}`, HEADERS, VALUE],
    [`/v1/kv/%zz${KEY}`, HEADERS, VALUE],
    [`/%zz/${KEY}`, HEADERS, VALUE],
    [`http://SECRET.test/v1/kv/${KEY}#SECRET`, HEADERS, VALUE],
  ]
}

async function seed(server: TestServer): Promise<void> {
  const ops = ['a', 'b'].map((end) => ({ op: 'put', key: `${KEY}/${end}`, value: VALUE }))
  const { statusCode, body } = await server.post(
    '/v1/txn',
    { ops },
    { authorization: HEADERS['authorization'] as string },
  )
  expect(statusCode, body).toBe(200)
  await server.database.observers.put(KEY, { range: { prefix: Buffer.from(KEY) } })
}

function logged(lines: readonly string[]): Json[] {
  return lines.map((line) => JSON.parse(line) as Json)
}

test('every route, rightly and wrongly called, at the level trace', async () => {
  const all = await startLogged()
  const { server, port, lines, secrets } = all
  await seed(server)
  const statuses = await callAll(all)
  for (const raw of [
    `SECRET\r\n\r\n`,
    rawText(`BREW /v1/kv/${KEY}`),
    `GET /v1/kv/${KEY} HTTP/1.1\r\nConnection: close\r\n\r\n`,
  ])
    await rawAnswer(port, raw)
  secrets.requireNoneIn(lines)
  expect([...statuses.values()].flat()).not.toContain(500)
  const seen = new Set(logged(lines).map(({ method, route }) => `${method} ${route}`))
  for (const name of statuses.keys()) expect(seen, 'the log has the request').toContain(name)
  expect(seen.has('PUT /v1/kv/:key') && seen.has('GET /v1/txn/:txn/kv/:key')).toBe(true)
  // What there is instead: who asked, what came of it, and what leads from the answer to it.
  const requests = logged(lines).filter(({ msg }) => msg === 'incoming request')
  const answers = logged(lines).filter(({ msg }) => msg === 'request completed')
  expect(requests[0]).toMatchObject({ level: 'debug', reqId: expect.any(String), remoteAddress: '127.0.0.1' })
  expect(answers[0]).toMatchObject({ level: 'debug', statusCode: expect.any(Number), responseTime: expect.any(Number) })
})

test('a store with defects, whose errors quote what they were called with', async () => {
  const all = await startLogged()
  const { server, lines, secrets } = all
  await seed(server)
  const store = server.store as unknown as Record<string, unknown>
  const names = [
    'get',
    'batchGet',
    'scan',
    'prewrite',
    'commit',
    'rollback',
    'exclusive',
    'resolveLock',
    'mvccGetByKey',
    'raiseSafePoint',
  ]
  for (const name of names)
    store[name] = async () => {
      const cause = Object.assign(new TypeError(`cannot read ${KEY}\n    at ${VALUE}:1:1`), {
        input: VALUE,
        fields: { KEY },
      })
      throw Object.assign(new Error(`\n    at SECRET (${TOKEN})\n`, { cause }), { code: `E ${KEY}`, body: [VALUE] })
    }
  const statuses = await callAll(all)
  expect([...statuses.values()].flat().filter((status) => status === 500).length).toBeGreaterThan(20)
  secrets.requireNoneIn(lines)
  const failed = logged(lines).find(({ msg }) => msg === 'request failed')
  expect(failed).toMatchObject({
    level: 'error',
    reqId: expect.any(String),
    err: { type: 'Error', cause: { type: 'TypeError' } },
  })
  expect(JSON.stringify(failed)).toMatch(/log-secrets\.test\.ts:\d+/)
})

test('a damaged record: the request is told its key, the log its kind', async () => {
  const tapped = new TappedEngine()
  const all = await startLogged(tapped.open)
  const { server, lines, secrets } = all
  await seed(server)
  const records = tapped.raw.iterator({ gte: Buffer.from([0]), lt: Buffer.from([0xff]) })
  const damaged = (await records.nextv(1000)).map(([key, value]) => {
    const bytes = Buffer.from(value)
    bytes[0] = (bytes[0] ?? 0) ^ 1
    return { type: 'put' as const, key, value: bytes }
  })
  await records.close()
  await tapped.raw.write(damaged, false)
  const told = await server.get('/v1/kv?prefix=key', HEADERS)
  expect(told.json()).toMatchObject({ code: 'storage_unavailable', detail: expect.stringContaining(KEY) })
  await callAll(all)
  secrets.requireNoneIn(lines)
  expect(lines.join('')).toMatch(/the database is damaged: one of the newest records fails its checksum/)
  const { locks } = await server.store.scanLock({ maxTs: TIMESTAMP_MAX })
  for (const { key, startTs } of locks) await server.store.rollback({ keys: [key], startTs }).catch(() => {})
})
