import { describe, expect, test } from 'vitest'
import { expectProblem, type Headers, type Json, type Method, pack, type Sent, testServers, unpack } from './support.js'

const start = testServers()

const LONG = 'n'.repeat(6000)
const CUT = `${'n'.repeat(100)}…`

/** Of a problem, in either format. */
function detailOf(answer: Sent): unknown {
  return (unpack(answer.rawPayload) as Json)['detail']
}

describe('a misspelt name is answered with the nearest one', () => {
  const cases: readonly [method: Method, url: string, body: Json | undefined, field: string, detail: string][] = [
    ['PUT', '/v1/kv/k?ttlms=5', undefined, 'ttlms', 'ttlms is not a known query parameter: did you mean ttl_ms?'],
    ['PUT', '/v1/kv/k?ttl=5', undefined, 'ttl', 'ttl is not a known query parameter: did you mean ttl_ms?'],
    ['GET', '/v1/kv?limt=5', undefined, 'limt', 'limt is not a known query parameter: did you mean limit?'],
    ['DELETE', '/v1/kv?prefx=5', undefined, 'prefx', 'prefx is not a known query parameter: did you mean prefix?'],
    ['GET', `/v1/kv/k?${LONG}=1`, undefined, CUT, `${CUT} is not a known query parameter`],
    ['POST', '/v1/txn', { opss: [] }, 'opss', 'opss is not a known field: did you mean ops?'],
    ['POST', '/v1/txn', { [LONG]: [] }, CUT, `${CUT} is not a known field`],
    ['POST', '/v1/kv/batch_get', { key: ['a'] }, 'key', 'key is not a known field: did you mean keys?'],
    [
      'POST',
      '/v1/txn',
      { ops: [{ op: 'put', key: 'k', value: 'v', tll_ms: 5 }] },
      'ops[0].tll_ms',
      'ops[0].tll_ms is not a known field: did you mean ttl_ms?',
    ],
    [
      'POST',
      '/v1/txn',
      { ops: [{ opp: 'put', key: 'k' }] },
      'ops[0].opp',
      'ops[0].opp is not a known field: did you mean op?',
    ],
    [
      'POST',
      '/v1/percolator/commit',
      { keys: ['k'], start_ts: 5, comit_ts: 6 },
      'comit_ts',
      'comit_ts is not a known field: did you mean commit_ts?',
    ],
  ]

  test('in a query and in a body, as JSON or MessagePack', async () => {
    const server = await start()
    for (const [method, url, body, field, detail] of cases) {
      const answer =
        body === undefined
          ? await server.send(method, url, {}, method === 'PUT' ? 'v' : undefined)
          : await server.post(url, body)
      expectProblem(answer, 'invalid_argument', { field, detail })
      if (body === undefined) continue
      const packed = { 'content-type': 'application/msgpack', accept: 'application/msgpack' }
      expect(detailOf(await server.send('POST', url, packed, pack(body)))).toBe(detail)
    }
  })

  test('so is the name of an op', async () => {
    const server = await start()
    const answer = await server.post('/v1/txn', { ops: [{ op: 'putt', key: 'k', value: 'v' }] })
    const { detail } = expectProblem(answer, 'invalid_argument', { field: 'ops[0].op' })
    expect(detail).toMatch(/^ops\[0\]\.op must be one of .*: did you mean put\?$/)
  })
})

test('no answer repeats more of a path, a key or a name than a person reads', async () => {
  const server = await start({ limits: { keyBytesMax: 8192 } })
  const key = 'ÿ'.repeat(4000)
  const path = '/'.repeat(6000)
  const deep = JSON.stringify({ [LONG]: { [LONG]: { [LONG]: 0 } } }).replace('0', '"\\ud800"')
  const answers = [
    await server.get(`/v1/${path}`),
    await server.send('PATCH', `/v1/kv/${LONG}`),
    await server.get(`/v1/kv/${LONG}?${LONG}`),
    await server.post('/v1/txn', { [LONG]: 1 }),
    await server.post('/v1/txn', { ops: [{ op: LONG }] }),
    await server.post('/v1/txn', { checks: [{ key, exists: true }], ops: [] }),
    await server.send('POST', '/v1/txn', { 'content-type': 'application/json' }, deep),
    await server.send('PUT', '/v1/kv/k', { 'content-type': `text/plain; charset=${LONG}` }, 'v'),
    await server.send('PUT', '/v1/kv/k', { 'content-type': LONG, 'if-match': LONG }, 'v'),
    await server.send('PUT', `/v1/leases/${LONG}`, { 'content-type': 'application/json' }, '{}'),
    await server.send('PUT', `/v1/observers/${LONG}`, { 'content-type': 'application/json' }, '{"prefix":""}'),
    await server.get(`/v1/kv?cursor=${LONG}`),
    await server.get(`/v1/kv?limit=${LONG}`),
    await server.get(`/v1/changes?consumer=${LONG}`),
    await server.get('/v1/kv/k', { 'timeout-ms': LONG, accept: LONG }),
  ]
  const texts = answers.filter(({ statusCode }) => statusCode >= 400).map((answer) => answer.json<Json>())
  expect(texts.length).toBeGreaterThan(10)
  for (const { detail, field } of texts) {
    expect(String(detail).length, String(detail).slice(0, 200)).toBeLessThanOrEqual(2001)
    expect(String(field ?? '').length, String(field).slice(0, 200)).toBeLessThanOrEqual(220)
  }
  expect(detailOfCheck(answers[5])).toMatch(/does not hold$/)
})

function detailOfCheck(answer: Sent | undefined): string {
  return String(answer?.json<Json>()['detail'])
}

describe('a token is refused', () => {
  const FEW = 'few-prefixes-token-0123456789'
  const MANY = 'many-prefixes-token-0123456789'
  const OTHER = 'another-token-of-a-prefix-0123456789'
  const prefixes = Array.from({ length: 20 }, (_, n) => `prefix=p${n}/`).join(' ')
  const tokens = `rw ${FEW} prefix=app/ prefix=job/\nrw ${MANY} prefix=${LONG} ${prefixes}\nrw ${OTHER} prefix=secret/ name=hidden`
  const as = (token: string): Headers => ({ authorization: `Bearer ${token}` })
  const FEW_REACH = 'keys that begin with "app/" or "job/"'

  const cases: readonly [method: Method, url: string, body: Json | undefined, detail: string][] = [
    ['GET', '/v1/kv/secret%2Fa', undefined, `key is outside of what this token reaches: ${FEW_REACH}`],
    ['DELETE', '/v1/kv/other', undefined, `key is outside of what this token reaches: ${FEW_REACH}`],
    ['GET', '/v1/kv?prefix=ap', undefined, `the range is not within what this token reaches: ${FEW_REACH}`],
    ['GET', '/v1/kv', undefined, `the range is not within what this token reaches: ${FEW_REACH}`],
    [
      'POST',
      '/v1/txn',
      { ops: [{ op: 'get', key: 'x' }] },
      `ops[0].key is outside of what this token reaches: ${FEW_REACH}`,
    ],
    ['POST', '/v1/admin/gc', {}, `this needs a token that is not bound to key prefixes: this one reaches ${FEW_REACH}`],
  ]

  test('with what it reaches, and nothing of others', async () => {
    const server = await start({ tokens })
    for (const [method, url, body, detail] of cases) {
      const answer =
        body === undefined ? await server.send(method, url, as(FEW)) : await server.post(url, body, as(FEW))
      expectProblem(answer, 'forbidden', { detail })
      expect(answer.body).not.toMatch(/p1\/|hidden/)
    }
  })

  test('with the first of many prefixes, each cut', async () => {
    const server = await start({ tokens })
    const { detail } = expectProblem(await server.get('/v1/kv/other', as(MANY)), 'forbidden')
    const seven = Array.from({ length: 7 }, (_, n) => `"p${n}/"`).join(' or ')
    const reach = `keys that begin with "${'n'.repeat(99)}… or ${seven} or one of 13 more prefixes`
    expect(detail).toBe(`key is outside of what this token reaches: ${reach}`)
  })

  test('when nobody knows it, without a word about those that are known', async () => {
    const server = await start({ tokens })
    const wrong = await server.get('/v1/kv/app%2Fa', as('wrong-token-0123456789abcdef'))
    const { detail } = expectProblem(wrong, 'unauthorized')
    expect(detail).toBe(
      'the request needs a token that the server knows and that has not expired: Authorization: Bearer TOKEN',
    )
    expect(wrong.body).not.toMatch(/app\/|secret|hidden/)
  })
})
