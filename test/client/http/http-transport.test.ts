import { Packr } from 'msgpackr'
import { describe, expect, test, vi } from 'vitest'
import { ConnectionError } from '../../../src/client/http/connection-error.js'
import type { Fetch } from '../../../src/client/http/fetch-sender.js'
import { HttpTransport, type TransportOptions } from '../../../src/client/http/http-transport.js'
import { retryAfterMs } from '../../../src/client/http/retry-after.js'
import { ServerError } from '../../../src/client/http/server-error.js'
import { isUncertain } from '../../../src/coordinator/uncertain.js'
import { KvError } from '../../../src/errors/kv-error.js'

const packr = new Packr({ useRecords: false })
const REQUEST = { method: 'POST', path: '/v1/percolator/tso' } as const

type Step = Response | Error | 'hang'

/** A server of the script: one step a request, the last one for all that come after it. */
function scripted(steps: readonly Step[], options: TransportOptions = {}) {
  const seen: { url: string; init: RequestInit }[] = []
  const fetch: Fetch = async (url, init) => {
    const step = steps[Math.min(seen.length, steps.length - 1)] as Step
    seen.push({ url, init })
    if (step === 'hang') {
      return new Promise((_, reject) => {
        const { signal } = init
        signal?.addEventListener('abort', () => reject(signal.reason))
      })
    }
    if (step instanceof Error) throw step
    return step.clone()
  }
  return { seen, transport: new HttpTransport('http://kv.test', { fetch, retryMs: 400, ...options }) }
}

function problem(status: number, body: object, headers: Record<string, string> = {}): Response {
  const bytes = new Uint8Array(packr.pack({ title: 'x', status, ...body }))
  return new Response(bytes, { status, headers: { 'content-type': 'application/msgpack', ...headers } })
}

/** As undici rejects: the reason is one `cause` down. */
function failed(code: string, syscall?: string): Error {
  return new TypeError('fetch failed', { cause: Object.assign(new Error(`it is ${code}`), { code, syscall }) })
}

async function failureOf(sent: Promise<unknown>): Promise<Error> {
  const error = await sent.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (!(error instanceof Error)) throw new Error(`no failure: ${error}`)
  return error
}

const OK = new Response(new Uint8Array([0x80]))
const RESET = failed('ECONNRESET')
const REFUSED = failed('ECONNREFUSED')
const GATEWAY = new Response('<h1>Bad Gateway</h1>', { status: 502, headers: { 'content-type': 'text/html' } })
const OVERLOADED = problem(503, { code: 'overloaded', detail: 'too much' })
const UNAVAILABLE = problem(503, { code: 'storage_unavailable', detail: 'reopening' })

describe('is repeated until it is answered', () => {
  const cases: { name: string; steps: readonly Step[] }[] = [
    { name: 'a connection that broke', steps: [RESET, OK] },
    { name: 'nobody listening', steps: [REFUSED, REFUSED, OK] },
    { name: 'a gateway without a server', steps: [GATEWAY, OK] },
    { name: 'a storage that is being opened', steps: [UNAVAILABLE, OK] },
    { name: 'shed load', steps: [OVERLOADED, OK] },
    { name: 'a deadline of the server', steps: [problem(504, { code: 'timeout' }), OK] },
  ]
  for (const { name, steps } of cases) {
    test(name, async () => {
      const { transport, seen } = scripted(steps)
      expect((await transport.send(REQUEST)).body).toEqual(new Uint8Array([0x80]))
      expect(seen).toHaveLength(steps.length)
    })
  }

  test('no answer within its time', async () => {
    const { transport, seen } = scripted(['hang', OK], { requestTimeoutMs: 30 })
    await transport.send(REQUEST)
    expect(seen).toHaveLength(2)
  })

  test('in a time that no timer can hold', async () => {
    const { transport, seen } = scripted([OK], { requestTimeoutMs: Number.POSITIVE_INFINITY })
    await transport.send(REQUEST)
    expect(seen).toHaveLength(1)
  })

  test('headers by a function, asked each time', async () => {
    let asked = 0
    const { transport, seen } = scripted([RESET, OK], { headers: () => ({ Traceparent: `trace-${++asked}` }) })
    await transport.send(REQUEST)
    const sent = seen.map(({ init }) => new Headers(init.headers).get('traceparent'))
    expect(sent).toEqual(['trace-1', 'trace-2'])
  })

  test('the same bytes and headers each time', async () => {
    const { transport, seen } = scripted([RESET, OK], { headers: { Authorization: 'Bearer x' } })
    await transport.send({ ...REQUEST, headers: { 'idempotency-key': 'k' }, body: new Uint8Array([1]) })
    const [first, second] = seen.map(({ url, init: { signal: _, ...init } }) => ({ url, init }))
    expect(second).toEqual(first)
    expect(first?.init.headers).toEqual({
      authorization: 'Bearer x',
      accept: 'application/msgpack',
      'idempotency-key': 'k',
    })
  })

  test('no sooner than Retry-After says, and not at all when that is too late', async () => {
    const shortly = new Date(Date.now() + 1500).toUTCString()
    const patient = scripted([problem(503, { code: 'overloaded' }, { 'retry-after': '0' }), OK])
    await patient.transport.send(REQUEST)
    const impatient = scripted([problem(503, { code: 'overloaded' }, { 'retry-after': '5' }), OK])
    expect(await failureOf(impatient.transport.send(REQUEST))).toMatchObject({ code: 'overloaded' })
    expect(impatient.seen).toHaveLength(1)
    expect(retryAfterMs(shortly)).toBeGreaterThan(0)
    expect(retryAfterMs('2')).toBe(2000)
    expect([null, 'soon', 'Thu, 01 Jan 1970 00:00:00 GMT'].map((header) => retryAfterMs(header))).toEqual([0, 0, 0])
  })
})

describe('fails at once', () => {
  test('a refusal, with its code and fields', async () => {
    const lock = { key: new Uint8Array([255]), primary: new Uint8Array([1]), start_ts: 2 ** 45, for_update_ts: 0 }
    const entry = { code: 'key_locked', key: lock.key, lock }
    const body = {
      code: 'key_locked',
      detail: 'locked',
      key: lock.key,
      lock,
      errors: [entry, { code: 'newer', a_b: 1 }],
    }
    const { transport, seen } = scripted([problem(423, body)])
    const error = await failureOf(transport.send(REQUEST))
    expect(error).toBeInstanceOf(KvError)
    const info = { key: lock.key, primary: lock.primary, startTs: 2 ** 45, forUpdateTs: 0 }
    expect(error).toMatchObject({ code: 'key_locked', message: 'locked', fields: { key: lock.key, lock: info } })
    expect(Object.keys((error as KvError).fields)).toEqual(['key', 'lock'])
    expect((error as KvError).errors).toHaveLength(1) // What it does not know is left out.
    expect((error as KvError).errors?.[0]).toMatchObject({ code: 'key_locked', fields: { lock: info } })
    expect(seen).toHaveLength(1)
    expect(isUncertain(error)).toBe(false)
  })

  const cases = [
    {
      name: 'a defect',
      answer: problem(500, { code: 'internal', request_id: 'r1' }),
      code: 'internal',
      uncertain: true,
    },
    { name: 'HTML', answer: new Response('<p>', { status: 404 }), code: 'unexpected_answer', uncertain: false },
    { name: 'a redirect', answer: new Response(null, { status: 302 }), code: 'unexpected_answer', uncertain: false },
    { name: 'a map without code', answer: problem(418, {}), code: 'unexpected_answer', uncertain: false },
  ]
  for (const { name, answer, code, uncertain } of cases) {
    test(name, async () => {
      const { transport, seen } = scripted([answer])
      const error = await failureOf(transport.send(REQUEST))
      expect(error).toBeInstanceOf(ServerError)
      expect(error).toMatchObject({ code, status: answer.status })
      expect(isUncertain(error)).toBe(uncertain)
      expect(seen).toHaveLength(1)
    })
  }

  test('no token, or the wrong one', async () => {
    for (const [status, code] of [
      [401, 'unauthorized'],
      [403, 'forbidden'],
    ] as const) {
      const { transport, seen } = scripted([problem(status, { code })])
      const error = await failureOf(transport.send(REQUEST))
      expect(error).toBeInstanceOf(KvError)
      expect(error).toMatchObject({ code })
      expect(isUncertain(error)).toBe(false)
      expect(seen).toHaveLength(1)
    }
  })

  test('a problem of another media type', async () => {
    const json = JSON.stringify({ code: 'payload_too_large', detail: 'too long', field: 'headers' })
    const headers = { 'content-type': 'application/problem+json; charset=utf-8' }
    const { transport } = scripted([new Response(json, { status: 413, headers })])
    const error = await failureOf(transport.send(REQUEST))
    expect(error).toMatchObject({ name: 'KvError', code: 'payload_too_large', fields: { field: 'headers' } })
  })
})

describe('gives up in the end, and says whether anything may have happened', () => {
  const cases = [
    { name: 'never sent', steps: [REFUSED], code: 'connection_failed', uncertain: false },
    { name: 'sent, and no answer', steps: [RESET], code: 'connection_failed', uncertain: true },
    {
      name: 'sent, and the host became unreachable',
      steps: [failed('EHOSTUNREACH', 'read')],
      code: 'connection_failed',
      uncertain: true,
    },
    { name: 'a gateway all along', steps: [GATEWAY], code: 'connection_failed', uncertain: true },
    { name: 'lost, then nobody listening', steps: [RESET, REFUSED], code: 'connection_failed', uncertain: true },
    { name: 'shed each time', steps: [OVERLOADED], code: 'overloaded', uncertain: false },
    { name: 'lost, then shed', steps: [RESET, OVERLOADED], code: 'connection_failed', uncertain: true },
    { name: 'storage gone', steps: [UNAVAILABLE], code: 'storage_unavailable', uncertain: true },
    {
      name: 'never sent, then storage gone',
      steps: [REFUSED, UNAVAILABLE],
      code: 'storage_unavailable',
      uncertain: true,
    },
  ]
  for (const { name, steps, code, uncertain } of cases) {
    test(name, async () => {
      const { transport, seen } = scripted(steps, { retryMs: 120 })
      const error = await failureOf(transport.send(REQUEST))
      expect(error).toMatchObject({ code })
      expect(isUncertain(error)).toBe(uncertain)
      expect(seen.length).toBeGreaterThan(1)
    })
  }

  test('a refusal of a repetition stays what it is, but the first request may still arrive', async () => {
    const conflict = problem(409, { code: 'already_exists', detail: 'there' })
    for (const { steps, uncertain } of [
      { steps: [RESET, conflict], uncertain: true },
      { steps: [RESET, OVERLOADED, conflict], uncertain: true },
      { steps: [REFUSED, OVERLOADED, conflict], uncertain: false },
    ]) {
      const error = await failureOf(scripted(steps).transport.send(REQUEST))
      expect(error).toMatchObject({ name: 'KvError', code: 'already_exists' })
      expect(isUncertain(error)).toBe(uncertain)
    }
  })

  test('with where, how often and why', async () => {
    const { transport } = scripted([RESET], { retryMs: 0 })
    const error = await failureOf(transport.send({ ...REQUEST, path: '/v1/kv/a?lock_wait_ms=1' }))
    expect(error).toBeInstanceOf(ConnectionError)
    expect(error.message).toBe('no server was reached at http://kv.test, tried once: it is ECONNRESET')
    const reached = scripted([GATEWAY, RESET], { retryMs: 60 })
    expect((await failureOf(reached.transport.send({ ...REQUEST, path: '/v1/kv/a?lock_wait_ms=1' }))).message).toMatch(
      /^POST http:\/\/kv\.test\/v1\/kv\/a failed, tried \d+ times: it is ECONNRESET$/,
    )
    expect(error.cause).toBe(RESET)
  })
})

describe('a server that was never reached', () => {
  const PATIENT = { retryMs: 600_000, requestTimeoutMs: 600_000 }

  test('is waited for no longer than connectTimeoutMs says; the error has the address and the reason', async () => {
    const { transport, seen } = scripted([REFUSED], { ...PATIENT, connectTimeoutMs: 100 })
    const error = await failureOf(transport.send(REQUEST))
    expect(error).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: false, cause: REFUSED })
    expect(error.message).toMatch(/^no server was reached at http:\/\/kv\.test, tried \d+ times: it is ECONNREFUSED$/)
    expect(seen.length).toBeGreaterThan(1)
  })

  test('and that takes no connections: neither the request nor a question of its own is answered', async () => {
    const { transport, seen } = scripted(['hang'], { ...PATIENT, connectTimeoutMs: 150 })
    const error = await failureOf(transport.send(REQUEST))
    expect(error).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: true })
    expect(error.message).toBe('no server was reached at http://kv.test, tried once: no connection within 150 ms')
    expect(seen.map(({ url }) => url)).toEqual(['http://kv.test/v1/percolator/tso', 'http://kv.test/healthz'])
    expect(seen.every(({ init }) => init.signal?.aborted)).toBe(true)
  })

  test('is told from one that is slow', async () => {
    let answer = (_: Response): void => {}
    const slow = new Promise<Response>((resolve) => {
      answer = resolve
    })
    const asked: string[] = []
    const fetch: Fetch = async (url) => {
      asked.push(new URL(url).pathname)
      if (asked.length === 1) return slow
      setTimeout(() => answer(OK.clone()), 200)
      return new Response('not ready', { status: 503 })
    }
    const transport = new HttpTransport('http://kv.test', { fetch, ...PATIENT, connectTimeoutMs: 150 })
    await transport.send(REQUEST)
    expect(asked).toEqual(['/v1/percolator/tso', '/healthz'])
  })

  test('and an abort ends the wait', async () => {
    const { transport, seen } = scripted(['hang'], { ...PATIENT, connectTimeoutMs: 600_000 })
    const controller = new AbortController()
    const sent = failureOf(transport.send({ ...REQUEST, signal: controller.signal }))
    await vi.waitUntil(() => seen.length === 1)
    controller.abort(new Error('enough'))
    expect((await sent).message).toBe('enough')
  })

  test('once it was, it is waited for as long as retryMs says', { tags: ['long'] }, async () => {
    const { transport, seen } = scripted([GATEWAY, REFUSED, REFUSED, REFUSED, REFUSED, OK], {
      retryMs: 60_000,
      connectTimeoutMs: 30,
    })
    await transport.send(REQUEST)
    expect(seen).toHaveLength(6)
  })

  test('all addresses of a name are in the reason', async () => {
    const reasons = ['::1', '127.0.0.1'].map((address) => new Error(`connect ECONNREFUSED ${address}:7400`))
    const cause = Object.assign(new AggregateError(reasons), { code: 'ECONNREFUSED' })
    const { transport } = scripted([new TypeError('fetch failed', { cause })], { connectTimeoutMs: 1 })
    expect(await failureOf(transport.send(REQUEST))).toMatchObject({
      message:
        'no server was reached at http://kv.test, tried once: connect ECONNREFUSED ::1:7400, connect ECONNREFUSED 127.0.0.1:7400',
      mayHaveTakenEffect: false,
    })
  })
})

describe('an AbortSignal', () => {
  test('cuts a request off, and is not held on to', async () => {
    const controller = new AbortController()
    const { transport, seen } = scripted(['hang'])
    const sent = failureOf(transport.send({ ...REQUEST, signal: controller.signal }))
    await vi.waitUntil(() => seen.length === 1)
    controller.abort(new Error('enough'))
    expect((await sent).message).toBe('enough')
    expect(seen[0]?.init.signal?.aborted).toBe(true)
    expect(seen).toHaveLength(1)
  })

  test('while a token is being asked for: nothing is sent', async () => {
    const controller = new AbortController()
    const token = async () => {
      controller.abort(new Error('enough'))
      return 't'
    }
    const { transport, seen } = scripted([OK], { token })
    expect((await failureOf(transport.send({ ...REQUEST, signal: controller.signal }))).message).toBe('enough')
    expect(seen).toHaveLength(0)
  })

  test('ends the pause between two tries', async () => {
    const { transport } = scripted([problem(503, { code: 'overloaded' }, { 'retry-after': '30' })], { retryMs: 60_000 })
    const started = performance.now()
    const error = await failureOf(transport.send({ ...REQUEST, signal: AbortSignal.timeout(50) }))
    expect(error.name).toBe('TimeoutError')
    expect(performance.now() - started).toBeLessThan(5000)
  })

  test('aborted before: nothing is sent', async () => {
    const { transport, seen } = scripted([OK])
    const signal = AbortSignal.abort()
    expect((await failureOf(transport.send({ ...REQUEST, signal }))).name).toBe('AbortError')
    expect(seen).toHaveLength(0)
  })
})

test.each([
  ['that throws', () => JSON.parse('{')],
  ['that gives an invalid name', () => ({ 'a b': 'c' })],
])('a function for headers %s fails the call before anything is sent', async (_, headers) => {
  const { transport, seen } = scripted([OK], { headers })
  expect(await failureOf(transport.send(REQUEST))).not.toBeInstanceOf(ConnectionError)
  expect(seen).toEqual([])
})

test('whatever is no definite answer is uncertain', () => {
  expect(isUncertain(new DOMException('stop', 'AbortError'))).toBe(true)
  expect(isUncertain(new ServerError('unexpected_answer', 'HTML', 200))).toBe(true)
  expect(isUncertain(new KvError('storage_unavailable', 'x', {}))).toBe(true)
  expect(isUncertain(new KvError('not_found', 'x', {}))).toBe(false)
})

describe('token', () => {
  const sent = (seen: readonly { init: RequestInit }[]) =>
    seen.map(({ init }) => new Headers(init.headers).get('authorization'))

  test('goes with every request; a function is asked before each, repetitions too', async () => {
    const fixed = scripted([OK], { token: 'abc' })
    await fixed.transport.send(REQUEST)
    expect(sent(fixed.seen)).toEqual(['Bearer abc'])

    let count = 0
    const rotating = scripted([RESET, OK], { token: async () => `t${++count}` })
    await rotating.transport.send(REQUEST)
    expect(sent(rotating.seen)).toEqual(['Bearer t1', 'Bearer t2'])
  })

  test('one that no header can hold is refused without saying it', async () => {
    const bad = 'se cret\n'
    expect(() => scripted([OK], { token: bad })).toThrow(TypeError)
    expect(() => scripted([OK], { token: bad })).not.toThrow(/cret/)
    const { transport, seen } = scripted([OK], { token: () => bad })
    const error = await failureOf(transport.send(REQUEST))
    expect(error).toBeInstanceOf(TypeError)
    expect(error.message).not.toContain('cret')
    expect(seen).toHaveLength(0)
  })

  test('the error of a function that has none comes out, and nothing is sent', async () => {
    const { transport, seen } = scripted([OK], { token: () => Promise.reject(new Error('no token today')) })
    expect((await failureOf(transport.send(REQUEST))).message).toBe('no token today')
    expect(seen).toHaveLength(0)
  })
})
