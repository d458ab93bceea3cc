import { setTimeout } from 'node:timers/promises'
import { inspect } from 'node:util'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createLog } from '../../src/server/log.js'
import { OtlpTraces } from '../../src/server/otlp-traces.js'
import { type Json, numberOf, type StartOptions, sendTo, type TestServer, testServers } from '../http/support.js'
import { TappedEngine } from '../store/support.js'
import { Collector } from './collector.js'

const start = testServers()

const JSON_TYPE = { 'content-type': 'application/json' }
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c'
const PARENT_ID = 'b7ad6b7169203331'
const TRACEPARENT = `00-${TRACE_ID}-${PARENT_ID}-01`
const SERVER = 2
const ERROR = 2

const opened: { close(): unknown }[] = []
beforeEach(() => void vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '5'))
afterEach(async () => {
  vi.unstubAllEnvs()
  for (const one of opened.splice(0)) await one.close()
})

interface Traced {
  readonly server: TestServer
  readonly port: number
  readonly collector: Collector
  readonly traces: OtlpTraces
  readonly lines: Json[]
}

async function startTraced(collector = new Collector(), options: StartOptions = {}): Promise<Traced> {
  const url = `${await collector.listen()}/v1/traces`
  return { ...(await startAt(url, options)), collector: opened[opened.push(collector) - 1] as Collector }
}

async function startAt(url: string, options: StartOptions = {}): Promise<Omit<Traced, 'collector'>> {
  const lines: Json[] = []
  const log = createLog('warn', (line) => void lines.push(JSON.parse(line)))
  const traces = new OtlpTraces({ url, version: '1.2.3', scheme: 'http', log })
  opened.unshift(traces)
  const server = await start({ traces, slowMs: 0, ...options })
  return { server, port: await server.listen(), traces, lines }
}

// `?lock_wait_ms` takes a request out of the fast lane.
test.each(['', '?lock_wait_ms=1000'])('the span of a PUT, below that of its caller %s', async (query) => {
  const { port, collector } = await startTraced()
  const put = await sendTo({ port }, 'PUT', `/v1/kv/secret-key${query}`, { traceparent: TRACEPARENT }, 'secret-value')
  const span = await collector.server('PUT /v1/kv/:key')
  expect(span).toMatchObject({ traceId: TRACE_ID, parentSpanId: PARENT_ID, kind: SERVER, statusCode: 0 })
  expect(span.attributes).toEqual({
    'http.request.method': 'PUT',
    'url.scheme': 'http',
    'http.route': '/v1/kv/:key',
    'http.response.status_code': 200,
    'perkv.start_ts': expect.any(Number),
    'perkv.commit_ts': JSON.parse(put.body).commit_ts,
    'perkv.commit_kind': '1pc',
  })
  expect(collector.within(span).filter((name) => name !== 'receive body')).toEqual(['write'])
  expect(span.endedNs).toBeGreaterThan(span.beganNs)
  expect(Math.abs(Number(span.endedNs / 1_000_000n) - Date.now())).toBeLessThan(60_000)
  expect(collector.resource).toMatchObject({ 'service.name': 'perkv', 'service.version': '1.2.3' })
  expect(collector.texts.join()).not.toContain('secret')
})

test('without a caller a trace begins; a path without parameters is told', async () => {
  const { port, collector } = await startTraced()
  const body = '{"ops":[{"op":"put","key":"key","value":"value"},{"op":"get","key":"other"}]}'
  await sendTo({ port }, 'POST', '/v1/txn', JSON_TYPE, body)
  const span = await collector.server('POST /v1/txn')
  expect(span.parentSpanId).toBeUndefined()
  expect(span.attributes).toMatchObject({ 'url.path': '/v1/txn', 'perkv.commit_kind': '1pc' })
  await sendTo({ port }, 'GET', '/secret', {})
  const lost = await collector.server('GET')
  expect(lost.attributes).toMatchObject({ 'http.response.status_code': 404, 'error.type': 'not_found' })
  expect(lost.attributes).not.toHaveProperty('url.path')
})

test('a problem is told by its code; a fault of the server is an error', async () => {
  const tapped = new TappedEngine()
  const { port, collector } = await startTraced(new Collector(), { openEngine: tapped.open })
  await sendTo({ port }, 'GET', '/v1/kv/missing')
  await sendTo({ port }, 'GET', '/v1/kv/missing?lock_wait_ms=1')
  for (const nth of [1, 2]) {
    const { statusCode, attributes } = await collector.server('GET /v1/kv/:key', nth)
    expect(statusCode).toBe(0)
    expect(attributes).toMatchObject({ 'http.response.status_code': 404, 'error.type': 'not_found' })
  }
  tapped.onWrite = () => Promise.reject(new Error('no disk'))
  await sendTo({ port }, 'PUT', '/v1/kv/key', {}, 'value')
  const { statusCode, attributes } = await collector.server('PUT /v1/kv/:key')
  expect(statusCode).toBe(ERROR)
  expect(attributes).toMatchObject({ 'http.response.status_code': 500, 'error.type': 'internal' })
})

test.each(['', '?lock_wait_ms=3000'])('a wait for a lock, its resolving, and the read %s', async (query) => {
  const { server, port, collector } = await startTraced()
  const start_ts = numberOf(await server.ok('tso', {}), 'ts')
  const mutations = ['first', 'key'].map((key) => ({ op: 'put', key, value: 'locked' }))
  await server.ok('prewrite', { start_ts, primary: 'first', lock_ttl: 60_000, mutations })
  const reading = sendTo({ port }, 'GET', `/v1/kv/key${query}`)
  await vi.waitFor(async () => expect((await server.get('/v1/status')).json()['overload'].requests).toBe(1))
  await server.ok('rollback', { start_ts, keys: ['first', 'key'] })
  expect((await reading).status).toBe(404)
  const span = await collector.server('GET /v1/kv/:key')
  const names = collector.within(span)
  expect(names).toContain('lock wait')
  expect(names).toContain('read')
  for (const child of collector.spans.filter(({ parentSpanId }) => parentSpanId === span.spanId)) {
    expect(child.beganNs).toBeGreaterThanOrEqual(span.beganNs)
    expect(child.endedNs).toBeLessThanOrEqual(span.endedNs)
  }
})

test('calls of the protocol tell their timestamps', async () => {
  const { server, port, collector } = await startTraced()
  const start_ts = numberOf(await server.ok('tso', {}), 'ts')
  const call = (name: string, body: Json) =>
    sendTo({ port }, 'POST', `/v1/percolator/${name}`, JSON_TYPE, JSON.stringify(body))
  const mutations = [{ op: 'put', key: 'key', value: 'value' }]
  await call('prewrite', { start_ts, primary: 'key', mutations })
  const commit_ts = numberOf(await server.ok('tso', {}), 'ts')
  await call('commit', { start_ts, commit_ts, keys: ['key'] })
  const prewrite = await collector.server('POST /v1/percolator/prewrite')
  expect(prewrite.attributes).toMatchObject({ 'perkv.start_ts': start_ts })
  const commit = await collector.server('POST /v1/percolator/commit')
  expect(commit.attributes).toMatchObject({ 'perkv.start_ts': start_ts, 'perkv.commit_ts': commit_ts })
})

test('a stream ends when its client leaves', async () => {
  const { port, collector } = await startTraced()
  const leaving = new AbortController()
  const headers = { accept: 'text/event-stream' }
  const stream = await fetch(`http://127.0.0.1:${port}/v1/kv/key`, { headers, signal: leaving.signal })
  await sendTo({ port }, 'PUT', '/v1/kv/other', {}, 'value')
  await collector.server('PUT /v1/kv/:key')
  expect(collector.spans.filter(({ name }) => name.startsWith('GET'))).toEqual([])
  leaving.abort()
  const span = await collector.server('GET /v1/kv/:key')
  expect(span.attributes).toMatchObject({ 'http.response.status_code': stream.status })
})

test.each([
  ['no version', TRACEPARENT.slice(3)],
  ['zeros', `00-${'0'.repeat(32)}-${PARENT_ID}-01`],
  ['upper case', TRACEPARENT.toUpperCase()],
  ['more than version 00 has', `${TRACEPARENT}-more`],
  ['long', `01-${TRACEPARENT.slice(3)}-${'x'.repeat(6000)}`],
  ['spaces', ' '.repeat(500)],
])('a traceparent with %s begins a trace of its own', async (_, traceparent) => {
  const { port, collector } = await startTraced()
  for (const query of ['', '?lock_wait_ms=1']) {
    const headers = { traceparent, tracestate: 'a=b,'.repeat(400) }
    expect((await sendTo({ port }, 'PUT', `/v1/kv/key${query}`, headers, 'value')).status).toBe(200)
  }
  for (const nth of [1, 2]) {
    const span = await collector.server('PUT /v1/kv/:key', nth)
    expect(span.parentSpanId).toBeUndefined()
    expect(span.traceId).not.toBe(TRACE_ID)
  }
})

test('tracestate, into which clients may write anything, is not sent', async () => {
  const { port, collector } = await startTraced()
  for (const query of ['', '?lock_wait_ms=1'])
    await sendTo(
      { port },
      'PUT',
      `/v1/kv/key${query}`,
      { traceparent: TRACEPARENT, tracestate: 'app=secret-1' },
      'value',
    )
  for (const nth of [1, 2]) {
    const span = await collector.server('PUT /v1/kv/:key', nth)
    expect(span.parentSpanId).toBe(PARENT_ID)
  }
  expect(inspect(collector.spans, { depth: null })).not.toContain('secret-1')
})

test('what a caller does not sample is not sent; without a caller the sampler decides', async () => {
  vi.stubEnv('OTEL_TRACES_SAMPLER', 'parentbased_traceidratio')
  vi.stubEnv('OTEL_TRACES_SAMPLER_ARG', '0')
  const { port, collector } = await startTraced()
  await sendTo({ port }, 'PUT', '/v1/kv/key', {}, 'value')
  await sendTo({ port }, 'PUT', '/v1/kv/key', { traceparent: `00-${TRACE_ID}-${PARENT_ID}-00` }, 'value')
  await sendTo({ port }, 'GET', '/v1/kv/key', { traceparent: TRACEPARENT })
  await collector.server('GET /v1/kv/:key')
  expect(collector.spans.map(({ name }) => name)).toEqual(['GET /v1/kv/:key'])
})

test.each([
  ['refuses', new Collector((response) => void response.writeHead(500).end('no'))],
  ['answers garbage', new Collector((response) => void response.end('<html>'))],
  ['hangs', new Collector(() => {})],
  ['hangs up', new Collector((response) => void response.destroy())],
])('a collector that %s fails no request, and is told of once', { tags: ['long'] }, async (fault, collector) => {
  vi.stubEnv('OTEL_BSP_MAX_QUEUE_SIZE', '8')
  vi.stubEnv('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '4')
  vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', fault === 'hangs' ? '20' : '1000')
  const { port, traces, lines } = await startTraced(collector)
  for (let i = 0; i < 50; i++) {
    expect((await sendTo({ port }, 'PUT', '/v1/kv/key', {}, 'value')).status).toBe(200)
    if (i % 10 === 0) await setTimeout(10)
  }
  await vi.waitFor(() => expect(lines.length).toBeGreaterThan(0))
  await traces.close()
  const failures = lines.filter(({ msg }) => String(msg).includes('could not be sent'))
  expect(failures.length).toBeLessThanOrEqual(1)
  expect(lines.length).toBeLessThanOrEqual(2) // The other one is the SDK's own.
})

test('nothing listens where the collector should be', async () => {
  vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '100')
  const { port, lines } = await startAt('http://127.0.0.1:1/v1/traces')
  expect((await sendTo({ port }, 'PUT', '/v1/kv/key', {}, 'value')).status).toBe(200)
  await vi.waitFor(() => expect(lines.map(({ msg }) => msg).join()).toContain('ECONNREFUSED'), 15_000)
})

test('the last spans are sent when the server stops', async () => {
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '60000')
  const { port, collector, traces } = await startTraced()
  await sendTo({ port }, 'PUT', '/v1/kv/key', {}, 'value')
  await traces.close()
  expect(collector.spans.map(({ name }) => name)).toContain('PUT /v1/kv/:key')
})
