import { mkdtemp, rm } from 'node:fs/promises'
import { type Agent, type IncomingHttpHeaders, request } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyInstance } from 'fastify'
import { Packr } from 'msgpackr'
import { afterEach, expect } from 'vitest'
import { parseTokens } from '../../src/access/tokens.js'
import { Database } from '../../src/database/database.js'
import { ERRORS } from '../../src/errors/registry.js'
import { type AppOptions, createApp } from '../../src/http/app.js'
import { DEFAULT_LIMITS, type Limits } from '../../src/limits.js'
import type { Logger } from '../../src/logger.js'
import { createLog } from '../../src/server/log.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import type { Engine } from '../../src/store/leveldb/engine/engine.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { openTestStore, reopenTestStore } from '../store/test-store.js'
import { type Described, describedAnswer } from './described.js'
import { Http2Requests } from './http2-requests.js'
import { giveBack, type PooledApp, takeApp } from './pooled-apps.js'
import type { Headers, Method, Sent } from './sent.js'
import { SocketRequests } from './socket-requests.js'

export type { Headers, Method, Sent } from './sent.js'

export type Json = Record<string, unknown>

export interface StartOptions {
  readonly log?: Logger
  readonly limits?: Partial<Limits>
  /** Unix milliseconds of the oracle; the real clock when absent. */
  readonly now?: () => number
  /** Milliseconds that pass as time does; as `now` when absent. */
  readonly monotonicNow?: () => number
  /** The text of a token file. */
  readonly tokens?: string
  readonly browserGuard?: AppOptions['browserGuard']
  readonly fastLane?: boolean
  readonly kvConnect?: boolean
  readonly slowMs?: number
  readonly traces?: AppOptions['traces']
  readonly webhookTargets?: AppOptions['webhookTargets']
  /** Tests put one in whose writes they hold back. */
  readonly openEngine?: (directory: string) => Promise<Engine>
  /** One of these that was closed, to go on with. */
  readonly directory?: string
  /** For tests of what an app counts: else an app may have served other tests before. */
  readonly ownApp?: boolean
}

/** What a problem may be called, except where the engine has failed or the server has a defect. */
export const STATUS_OF_CODE: ReadonlyMap<string, number> = new Map(
  Object.entries(ERRORS)
    .filter(([code]) => code !== 'storage_unavailable' && code !== 'internal')
    .map(([code, { status }]) => [code, status]),
)

const packr = new Packr({ useRecords: false, int64AsType: 'number' })
export const pack = (value: unknown): Buffer => packr.pack(value)
export const unpack = (bytes: Uint8Array): unknown => packr.unpack(bytes)

/**
 * `on`: requests that the fast lane serves are sent to it through sockets, and all others over HTTP/2. Otherwise all requests
 * are given to fastify's routes, without a connection. So that the tests hold for both, CI runs them both ways.
 */
const IS_FAST = process.env['PERKV_TEST_FAST_LANE'] === 'on'

/** A server on a directory of its own, and shorthands for talking to it. */
export class TestServer {
  readonly #fast: SocketRequests | undefined
  readonly #http2 = IS_FAST ? new Http2Requests(this) : undefined
  readonly #app: FastifyInstance
  /** Whether anybody but this shorthand may have changed the app, or have connections to it. */
  #isTouched = false
  #inFlight = 0
  #port: Promise<number> | undefined

  /**
   * @param isFast whether the server has a fast lane.
   * @param pooled the app, where another test may have it afterwards.
   */
  constructor(
    app: FastifyInstance,
    readonly database: Database,
    readonly directory: string,
    isFast: boolean,
    readonly pooled?: PooledApp,
  ) {
    this.#app = app
    if (isFast && IS_FAST) this.#fast = new SocketRequests(this)
  }

  get app(): FastifyInstance {
    this.#isTouched = true
    return this.#app
  }

  async close(): Promise<void> {
    if (this.pooled === undefined || this.#isTouched || this.#inFlight > 0) await this.#app.close()
    else giveBack(this.pooled)
    await this.database.close()
  }

  get store(): Store {
    return this.database.store
  }

  /** Locks that stand: counted by the store, or found where it counts none. */
  async lockCount(): Promise<number> {
    const { store } = this
    return store.locks?.count ?? (await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks.length
  }

  /** As the server does from time to time. */
  collectOutcomes(): Promise<void> {
    return this.database.collectOutcomes()
  }

  /** Every answer is held to the schemas of its route. */
  async send(method: Method, url: string, headers: Headers = {}, payload?: string | Buffer): Promise<Sent> {
    const answer = await this.#answer(method, url, headers, payload)
    const described = describedAnswer(this.#app, method, url, answer)
    if (described !== undefined) this.onAnswer?.(described)
    return answer
  }
  async #answer(method: Method, url: string, headers: Headers, payload: string | Buffer | undefined): Promise<Sent> {
    if (this.#fast !== undefined && SocketRequests.mayBeFast(method, url))
      return this.#fast.send(method, url, headers, payload)
    if (this.#http2 !== undefined) return this.#http2.send(method, url, headers, payload)
    this.#inFlight++
    try {
      return await this.#app.inject({ method, url, headers, ...(payload === undefined ? {} : { payload }) })
    } finally {
      this.#inFlight--
    }
  }
  onAnswer: ((answer: Described) => void) | undefined
  get(url: string, headers: Headers = {}): Promise<Sent> {
    return this.send('GET', url, headers)
  }
  post(url: string, body: unknown, headers: Headers = {}): Promise<Sent> {
    return this.send('POST', url, { 'content-type': 'application/json', ...headers }, JSON.stringify(body))
  }
  postPacked(url: string, body: Buffer, headers: Headers = {}): Promise<Sent> {
    return this.send('POST', url, { 'content-type': 'application/msgpack', ...headers }, body)
  }
  call(name: string, body: unknown): Promise<Sent> {
    return this.post(`/v1/percolator/${name}`, body)
  }
  /** The answer of a call that must succeed. */
  async ok(name: string, body: unknown): Promise<Json> {
    return okBody(await this.call(name, body))
  }
  async txn(body: unknown): Promise<Json> {
    return okBody(await this.post('/v1/txn', body))
  }
  /** @returns the commit_ts. */
  async put(key: string, value: string | Buffer, headers: Headers = {}): Promise<number> {
    const response = await this.send('PUT', urlOf(key), { 'content-type': 'text/plain', ...headers }, value)
    return numberOf(okBody(response), 'commit_ts')
  }
  async remove(key: string): Promise<number> {
    return numberOf(okBody(await this.send('DELETE', urlOf(key))), 'commit_ts')
  }
  mvcc(key: string): Promise<Json> {
    return this.ok('mvcc_get_by_key', { key })
  }
  /** Locks keys by a prewrite; the first is the primary. */
  lock(startTs: number, keys: readonly string[], rest: Json = {}): Promise<Json> {
    const mutations = keys.map((key) => ({ op: 'put', key, value: `${key}@${startTs}` }))
    return this.ok('prewrite', { mutations, primary: keys[0], start_ts: startTs, ...rest })
  }
  /** Prewrite and commit. */
  async write(startTs: number, commitTs: number, keys: readonly string[]): Promise<void> {
    await this.lock(startTs, keys)
    await this.ok('commit', { keys, start_ts: startTs, commit_ts: commitTs })
  }
  /** As the first reader of changes does. @returns the earliest since_ts from which all changes are told. */
  async beginFeed(): Promise<number> {
    const { log } = this.store
    await log.begin()
    return log.start
  }
  /** Waits until readers of changes are told what was committed before the call: on a shared store they are behind. */
  async untilTold(): Promise<void> {
    const ts = await this.store.tso(1)
    await expect.poll(() => this.store.log.resolve()).toBeGreaterThanOrEqual(ts)
  }
  listen(): Promise<number> {
    this.#port ??= this.#listen()
    return this.#port
  }
  async #listen(): Promise<number> {
    await this.app.listen({ port: 0, host: '127.0.0.1' })
    const address = this.app.server.address()
    if (address === null || typeof address === 'string') throw new Error('no port')
    return address.port
  }
}

/** Servers that go away after each test. */
export function testServers(): (options?: StartOptions) => Promise<TestServer> {
  const running: TestServer[] = []
  afterEach(async () => {
    for (const server of running.splice(0)) {
      await server.close()
      await rm(server.directory, { recursive: true, force: true })
    }
  })
  return async (options = {}) => {
    const server = await startServer(options)
    running.push(server)
    return server
  }
}

export async function startServer(options: StartOptions = {}): Promise<TestServer> {
  const {
    limits: given,
    now,
    monotonicNow,
    log = createLog('silent'),
    openEngine,
    tokens,
    browserGuard,
    fastLane,
    kvConnect,
    slowMs,
    traces,
    webhookTargets,
  } = options
  // However busy the machine is with other tests: nothing is shed for it, unless a test is about that.
  const limits = { ...DEFAULT_LIMITS, loopDelayMsMax: 0, ...given }
  const answers = new AnswerBudget(limits)
  const directory = options.directory ?? (await mkdtemp(join(tmpdir(), 'perkv-http-')))
  const clock = { now, monotonicNow }
  const open = options.directory === undefined ? openTestStore : reopenTestStore
  const tapped = openEngine && { openEngine }
  const store = await open(directory, { ...clock, ...tapped, answers, locksMax: limits.locksMax })
  const known = tokens === undefined ? undefined : parseTokens(tokens)
  const authenticate = known && ((token: string) => known.grantOf(token))
  const isPlain = !IS_FAST && Object.keys(options).every((name) => OF_THE_STORE.has(name))
  return serve(
    store,
    directory,
    { limits, log, authenticate, browserGuard, fastLane, kvConnect, slowMs, traces, webhookTargets },
    isPlain,
  )
}

/** Options that an app knows nothing of. */
const OF_THE_STORE: ReadonlySet<string> = new Set(['now', 'monotonicNow', 'openEngine', 'directory'])

/**
 * A server on a store that is open.
 * @param isPlain whether an app may serve it that has served others: it has no options of its own.
 */
export async function serve(
  store: Store,
  directory: string,
  options: Partial<AppOptions> = {},
  isPlain = false,
): Promise<TestServer> {
  const { limits = DEFAULT_LIMITS, log = createLog('silent') } = options
  const onError = (message: string, err: unknown): void => log.error({ err }, message)
  const database = await Database.open(store, { limits, onError })
  const context = { database, limits, log, version: '0.0.0-test', durability: 'async' } as const
  const isFast = options.fastLane !== false && options.tls === undefined && !log.isLevelEnabled('debug')
  const pooled = isPlain ? await takeApp({ ...options, ...context }) : undefined
  const app = pooled?.app ?? (await createApp({ ...options, ...context }))
  return new TestServer(app, database, directory, isFast, pooled)
}

/** A clock that tests step. */
export class Clock {
  ms = 1_700_000_000_000
  readonly now = (): number => this.ms
  ts(logical = 0): number {
    return this.ms * 2048 + logical
  }
}

/** A machine whose wall clock is set wrong, and whose time goes on all the same. */
export class Machine {
  uptimeMs = 1000
  wallMs = 1_700_000_000_000
  readonly now = (): number => this.wallMs
  readonly monotonicNow = (): number => this.uptimeMs
  pass(ms: number): void {
    this.uptimeMs += ms
    this.wallMs += ms
  }
  step(ms: number): void {
    this.wallMs += ms
  }
  ts(logical = 0): number {
    return this.wallMs * 2048 + logical
  }
}

export const urlOf = (key: string): string => `/v1/kv/${encodeURIComponent(key)}`

export function okBody(response: Sent): Json {
  expect(response.statusCode, response.body).toBe(200)
  return response.json<Json>()
}

export function numberOf(body: Json, name: string): number {
  const value = body[name]
  if (typeof value !== 'number') throw new Error(`${name} is no number: ${JSON.stringify(body)}`)
  return value
}

export function listOf(body: Json, name: string): Json[] {
  const value = body[name]
  if (!Array.isArray(value)) throw new Error(`${name} is no list: ${JSON.stringify(body)}`)
  return value as Json[]
}

/** Checks everything that all problems have in common, and the fields given. */
export function expectProblem(response: Sent, code: string, fields: Json = {}): Json {
  expect(response.headers['content-type'], response.body).toMatch(/^application\/problem\+json/)
  const body = response.json<Json>()
  expect(body, response.body).toMatchObject({ code, status: STATUS_OF_CODE.get(code), ...fields })
  expect(response.statusCode).toBe(STATUS_OF_CODE.get(code))
  expect(typeof body['title']).toBe('string')
  expect(typeof body['detail']).toBe('string')
  const isRace = [409, 412, 423, 504].includes(response.statusCode)
  expect(typeof body['retryable']).toBe(isRace ? 'boolean' : 'undefined')
  expect(response.body).not.toMatch(/\bat .*\.(js|ts):\d+/)
  return body
}

export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** A request over the network whose target and method are sent as they are: `inject` and `fetch` rewrite some. */
export function sendTo(
  to: { readonly port: number; readonly agent?: Agent },
  method: string,
  path: string,
  headers: Headers = {},
  body?: string | Buffer,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) } // Node sends none with GET.
    const sent = request({ ...to, host: '127.0.0.1', method, path, headers: { ...headers, ...length } }, (answer) => {
      const chunks: Buffer[] = []
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('end', () => {
        const { statusCode: status = 0, headers } = answer
        resolve({ status, headers, body: Buffer.concat(chunks).toString('utf8') })
      })
    })
    sent.once('error', reject)
    sent.end(body)
  })
}

/** Sends bytes as they are and reads until the server closes. */
export async function rawRequest(port: number, request: string | Buffer): Promise<{ status: number; body: string }> {
  const { head, body } = await rawAnswer(port, request)
  return { status: Number(head.split(' ')[1]), body }
}

/** Its status line and headers too. */
export function rawAnswer(port: number, request: string | Buffer): Promise<{ head: string; body: string }> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    const socket = connect(port, '127.0.0.1')
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('error', reject)
    socket.on('close', () => {
      const text = Buffer.concat(chunks).toString('latin1')
      const [head = '', ...rest] = text.split('\r\n\r\n')
      resolve({ head: `${head}\r\n`, body: rest.join('\r\n\r\n') })
    })
    socket.write(request)
  })
}

/** A request line with the headers that every raw request needs; one for a body too when there is one. */
export function rawText(line: string, headers: readonly string[] = [], body?: string): string {
  const length = body === undefined ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]
  return [`${line} HTTP/1.1`, 'Host: test', 'Connection: close', ...length, ...headers, '', body ?? ''].join('\r\n')
}
