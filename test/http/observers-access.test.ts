import { describe, expect, test } from 'vitest'
import { Observing } from './observing.js'
import { expectProblem, type Headers, type Json, type Method, okBody, type TestServer, testServers } from './support.js'

const start = testServers()

const RW = 'rw-token-0123456789'
const RO = 'ro-token-0123456789'
const APP = 'app-token-0123456789'
const APP_RO = 'app-ro-token-0123456789'
const TOKENS = `rw ${RW}\nro ${RO}\nrw ${APP} prefix=app/\nro ${APP_RO} prefix=app/\n`
const as = (token: string): Headers => ({ authorization: `Bearer ${token}` })
const JSON_TYPE = { 'content-type': 'application/json' }

/** With an observer within the prefix of the token APP, one that goes beyond it, and one outside of it. */
async function startGuarded(): Promise<TestServer> {
  const server = await start({ tokens: TOKENS })
  for (const [name, prefix] of Object.entries({ within: 'app/w', beyond: 'ap', outside: 'else/' }))
    expect((await new Observing(server, name, as(RW)).put({ prefix })).statusCode).toBe(201)
  for (const key of ['app/w1', 'else/1']) await server.put(key, `SECRET of ${key}`, as(RW))
  return server
}

/** Every call of one observer, with a key of it. */
function callsOf(name: string, key: string): [Method, string, Json | undefined][] {
  const url = `/v1/observers/${name}`
  const claims = [{ key, fence: 5 }]
  return [
    ['GET', url, undefined],
    ['GET', `${url}/parked`, undefined],
    ['POST', `${url}/claim`, { worker: 'w', values: true }],
    ['POST', `${url}/extend`, { claims }],
    ['POST', `${url}/release`, { claims }],
    ['POST', `${url}/notify`, { keys: [key] }],
    ['POST', `${url}/retry`, { keys: [key] }],
    ['POST', `${url}/retry`, {}],
    ['POST', `${url}/skip`, { keys: [key] }],
    ['POST', `${url}/backfill`, {}],
    ['POST', `${url}/pause`, {}],
    ['POST', `${url}/resume`, {}],
    ['DELETE', url, undefined],
  ]
}

function send(server: TestServer, token: string, [method, url, body]: [Method, string, Json | undefined]) {
  const headers = { ...as(token), ...(body === undefined ? {} : JSON_TYPE) }
  return server.send(method, url, headers, body === undefined ? undefined : JSON.stringify(body))
}

test('a token does everything with an observer whose range it reaches', async () => {
  const server = await startGuarded()
  for (const call of callsOf('within', 'app/w1')) {
    const answer = await send(server, APP, call)
    expect(answer.statusCode, `${call[0]} ${call[1]}: ${answer.body}`).toBeLessThan(300)
  }
  const put: [Method, string, Json] = ['PUT', '/v1/observers/mine', { prefix: 'app/' }]
  expect((await send(server, APP, put)).statusCode).toBe(201)
})

test('a read-only one sees it, and changes nothing', async () => {
  const server = await startGuarded()
  for (const token of [RO, APP_RO])
    for (const call of callsOf('within', 'app/w1')) {
      const answer = await send(server, token, call)
      if (call[0] === 'GET') okBody(answer)
      else expectProblem(answer, 'forbidden')
    }
  expectProblem(await send(server, RO, ['PUT', '/v1/observers/mine', { prefix: 'app/' }]), 'forbidden')
  expect(await new Observing(server, 'within', as(RO)).state()).toMatchObject({ pending: 1, state: 'running' })
})

describe('a token with a prefix', () => {
  test('does not find the others, as it does not find those that are not there', async () => {
    const server = await startGuarded()
    for (const name of ['beyond', 'outside', 'nobody'])
      for (const call of callsOf(name, 'app/w1')) {
        const answer = await send(server, APP, call)
        const problem = expectProblem(answer, 'not_found')
        expect(problem).toEqual({
          ...{ title: 'Not found', status: 404, code: 'not_found' },
          detail: `there is no observer ${name}`,
        })
      }
    const states = okBody(await server.get('/v1/observers', as(RW)))['observers'] as Json[]
    for (const state of states) expect(state).toMatchObject({ state: 'running', claimed: 0, workers: [] })
  })

  test('is shown its own in the list', async () => {
    const server = await startGuarded()
    const names = async (token: string) =>
      (okBody(await server.get('/v1/observers', as(token)))['observers'] as Json[]).map(({ name }) => name)
    expect(await names(RW)).toEqual(['beyond', 'outside', 'within'])
    expect(await names(RO)).toEqual(['beyond', 'outside', 'within'])
    expect(await names(APP)).toEqual(['within'])
    expect(await names(APP_RO)).toEqual(['within'])
  })

  test('registers no range beyond it', async () => {
    const server = await startGuarded()
    for (const range of [
      { prefix: '' },
      { prefix: 'ap' },
      { prefix: 'b' },
      { start: 'app/' },
      { end: 'app0' },
      { start: 'app/', end: 'app1' },
    ])
      expectProblem(await send(server, APP, ['PUT', '/v1/observers/mine', range]), 'forbidden')
    expect((await send(server, APP, ['PUT', '/v1/observers/mine', { start: 'app/', end: 'app0' }])).statusCode).toBe(
      201,
    )
    const taken = await send(server, APP, ['PUT', '/v1/observers/outside', { prefix: 'app/' }])
    expectProblem(taken, 'already_exists', { observer: 'outside' })
    expect(taken.body).not.toContain('else/')
  })

  test('names no key beyond it, in whatever list', async () => {
    const server = await startGuarded()
    const url = '/v1/observers/within'
    const key = 'else/1'
    for (const [call, body] of Object.entries({
      extend: { claims: [{ key, fence: 5 }] },
      release: { claims: [{ key, fence: 5 }] },
      notify: { keys: [key] },
      retry: { keys: [key] },
      skip: { keys: [key] },
    }))
      expectProblem(await send(server, APP, ['POST', `${url}/${call}`, body]), 'forbidden')
  })

  test('acknowledges and notifies for its observers only, wherever riders go', async () => {
    const server = await startGuarded()
    const { ts: fence } = okBody(await send(server, APP, ['POST', '/v1/percolator/tso', {}]))
    const txn = okBody201(await send(server, APP, ['POST', '/v1/txn/begin', {}]))
    const roads: ((riders: Json) => [Method, string, Json])[] = [
      (riders) => ['POST', '/v1/txn', riders],
      (riders) => ['POST', `/v1/txn/${txn}/commit`, riders],
      (riders) => {
        const body = { mutations: [], primary: 'app/w1', start_ts: fence, try_one_pc: true, riders }
        return ['POST', '/v1/percolator/prewrite', body]
      },
    ]
    for (const road of roads) {
      for (const observer of ['beyond', 'nobody']) {
        const acks = [{ observer, key: 'app/w1', fence }]
        const detail = `there is no observer ${observer}`
        expectProblem(await send(server, APP, road({ acks })), 'not_found', { detail })
        expectProblem(await send(server, APP, road({ notify: [{ observer, keys: ['app/w1'] }] })), 'not_found', {
          detail,
        })
      }
      for (const riders of [
        { acks: [{ observer: 'outside', key: 'else/1', fence }] },
        { notify: [{ observer: 'outside', keys: ['else/1'] }] },
        { notify: [{ observer: 'within', keys: ['app/w1', 'else/1'] }] },
      ])
        expectProblem(await send(server, APP, road(riders)), 'forbidden')
    }
    const [claimed] = await new Observing(server, 'within', as(APP)).claim()
    const acks = [{ observer: 'within', key: 'app/w1', fence: claimed?.fence }]
    expect((await send(server, APP, ['POST', '/v1/txn', { acks }])).statusCode).toBe(200)
  })

  test('is told nothing of others’ keys by a refusal', async () => {
    const server = await startGuarded()
    const words = new Observing(server, 'within', as(APP))
    const claimed = await words.claimOne()
    await words.acked(claimed)
    const refused = await words.ack(claimed)
    expectProblem(refused, 'write_conflict', { observer: 'within', key: 'app/w1', primary: 'app/w1' })
    expect(refused.body).not.toContain('SECRET')
  })
})

test('a read-only token carries no riders', { tags: ['long'] }, async () => {
  const server = await startGuarded()
  const riders = [
    { acks: [{ observer: 'within', key: 'app/w1', fence: 5 }] },
    { notify: [{ observer: 'within', keys: ['app/w1'] }] },
  ]
  const txn = okBody201(await send(server, RO, ['POST', '/v1/txn/begin', {}]))
  for (const body of riders) {
    expectProblem(await send(server, RO, ['POST', '/v1/txn', body]), 'forbidden')
    expectProblem(await send(server, RO, ['POST', `/v1/txn/${txn}/commit`, body]), 'forbidden')
  }
  const none = { acks: [], notify: [], ops: [{ op: 'get', key: 'app/w1' }] }
  expect((await send(server, RO, ['POST', '/v1/txn', none])).statusCode).toBe(200)
})

function okBody201(answer: { readonly statusCode: number; json<T>(): T }): string {
  expect(answer.statusCode).toBe(201)
  return String(answer.json<Json>()['txn'])
}
