import { afterEach, describe, expect, test } from 'vitest'
import { createLog } from '../../src/server/log.js'
import { Targets } from '../../src/webhooks/targets.js'
import { isSigned, Receiver } from './receiver.js'
import { type OneOfSeveral, severalServers } from './several-servers.js'
import { expectProblem, type Headers, type Json, okBody, type Sent, type TestServer, testServers } from './support.js'

const start = testServers()
const startSeveral = severalServers()

const receivers: Receiver[] = []
afterEach(async () => {
  for (const receiver of receivers.splice(0)) await receiver.close()
})

async function receive(): Promise<{ readonly receiver: Receiver; readonly url: string }> {
  const receiver = new Receiver()
  receivers.push(receiver)
  return { receiver, url: await receiver.listen() }
}

function allowing(...urls: readonly string[]): Targets {
  const targets = Targets.parse(urls.join(','))
  if (typeof targets === 'string') throw new Error(targets)
  return targets
}

/** Back-off that a test waits for. */
const FAST = { backoff_ms: 1, backoff_max_ms: 5 }

/** A server, a target, and a webhook between them. */
class Hooked {
  secret = ''

  constructor(
    readonly server: TestServer,
    readonly receiver: Receiver,
    readonly url: string,
  ) {}

  static async start(options: Parameters<typeof start>[0] = {}): Promise<Hooked> {
    const { receiver, url } = await receive()
    return new Hooked(await start({ ...options, webhookTargets: allowing(url) }), receiver, url)
  }

  async put(body: Json = {}, name = 'hook', headers: Headers = {}): Promise<Json> {
    const json = JSON.stringify({ url: this.url, prefix: 'doc/', ...FAST, ...body })
    const type = { 'content-type': 'application/json', ...headers }
    const answer = await this.server.send('PUT', `/v1/webhooks/${name}`, type, json)
    expect([200, 201], answer.body).toContain(answer.statusCode)
    const state = answer.json<Json>()
    if (typeof state['secret'] === 'string') this.secret = state['secret']
    return state
  }

  async state(name = 'hook'): Promise<Json> {
    return okBody(await this.server.get(`/v1/webhooks/${name}`))
  }

  async act(action: 'retry' | 'skip' | 'reset', body: Json = {}): Promise<Json> {
    return okBody(await this.server.post(`/v1/webhooks/hook/${action}`, body))
  }

  /** Waits until everything up to `commitTs` is delivered. */
  async untilDelivered(commitTs: number): Promise<void> {
    await expect.poll(async () => Number((await this.state())['position'])).toBeGreaterThanOrEqual(commitTs)
  }

  async untilState(state: string): Promise<Json> {
    await expect.poll(async () => (await this.state())['state']).toBe(state)
    return this.state()
  }
}

describe('deliveries', () => {
  test('a webhook gets whole transactions of its range, in order, with a signature', async () => {
    const hooked = await Hooked.start()
    const { server, receiver } = hooked
    const made = await hooked.put()
    expect(made).toMatchObject({ name: 'hook', prefix: 'doc/', state: 'running', attempts: 0, batch: 100 })
    expect(hooked.secret).toMatch(/^whsec_.{44}$/)
    const first = await server.put('doc/1', 'one')
    await server.put('elsewhere', 'x')
    const { commit_ts: second } = await server.txn({
      ops: [
        { op: 'put', key: 'doc/2', value: 'two' },
        { op: 'delete', key: 'doc/1' },
        { op: 'put', key: 'other', value: 'x' },
      ],
    })
    await hooked.untilDelivered(Number(second))
    expect(receiver.commits).toEqual([first, second])
    expect(receiver.all.flatMap(({ txns }) => txns.flatMap(({ changes }) => changes))).toEqual([
      { key: 'doc/1', op: 'put', value: 'one' },
      { key: 'doc/1', op: 'delete' },
      { key: 'doc/2', op: 'put', value: 'two' },
    ])
    for (const received of receiver.all) {
      expect(received.headers).toMatchObject({ 'content-type': 'application/json', 'user-agent': 'perkv/0.0.0-test' })
      expect(Math.abs(Number(received.headers['webhook-timestamp']) - Date.now() / 1000)).toBeLessThan(300)
      expect(isSigned(received, hooked.secret)).toBe(true)
      expect(isSigned({ ...received, body: `${received.body} ` }, hooked.secret)).toBe(false)
    }
    expect(new Set(receiver.all.map(({ headers }) => headers['webhook-id'])).size).toBe(receiver.all.length)
  })

  test('it begins at since_ts, in batches', async () => {
    const hooked = await Hooked.start()
    await hooked.server.beginFeed()
    const commits: number[] = []
    for (let i = 0; i < 7; i++) commits.push(await hooked.server.put(`doc/${i}`, 'x'))
    await hooked.put({ batch: 3, since_ts: (commits[0] ?? 0) - 1 })
    await hooked.untilDelivered(commits.at(-1) ?? 0)
    expect(hooked.receiver.commits).toEqual(commits)
    // Where servers share a store, the feed may not have come further yet.
    for (const { txns } of hooked.receiver.all) expect(txns.length).toBeLessThanOrEqual(3)
  })

  test('after a failure a smaller batch leaves nothing out', async () => {
    const hooked = await Hooked.start()
    await hooked.server.beginFeed()
    const commits: number[] = []
    for (let i = 0; i < 4; i++) commits.push(await hooked.server.put(`doc/${i}`, 'x'))
    hooked.receiver.answers = (response) => response.writeHead(500).end()
    await hooked.put({ since_ts: (commits[0] ?? 0) - 1, max_attempts: 0 })
    await hooked.untilState('retrying')
    await hooked.put({ batch: 1, max_attempts: 0 })
    hooked.receiver.answers = (response, { txns }) => {
      const isOne = txns.length === 1
      if (!isOne) hooked.receiver.all.pop()
      response.writeHead(isOne ? 204 : 500).end()
    }
    await hooked.untilDelivered(commits.at(-1) ?? 0)
    expect(hooked.receiver.commits.slice(-4)).toEqual(commits)
  })

  test('a transaction that is longer than a page comes in parts', async () => {
    const hooked = await Hooked.start({ limits: { pageBytesMax: 2000 } })
    await hooked.put()
    const ops = Array.from({ length: 50 }, (_, i) => ({ op: 'put', key: `doc/${i}`, value: 'x'.repeat(200) }))
    const { commit_ts: long } = await hooked.server.txn({ ops })
    const after = await hooked.server.put('doc/after', 'y')
    await hooked.untilDelivered(after)
    const parts = hooked.receiver.all.filter(({ txns }) => txns[0]?.['commit_ts'] === long).flatMap(({ txns }) => txns)
    expect(parts.length).toBeGreaterThan(3)
    expect(parts.map(({ part }) => part)).toEqual(parts.map((_, i) => i))
    expect(parts.map(({ is_last }) => is_last)).toEqual(parts.map((_, i) => i === parts.length - 1))
    expect(parts.flatMap(({ changes }) => changes as Json[])).toHaveLength(50)
    expect(new Set(hooked.receiver.all.map(({ headers }) => headers['webhook-id'])).size).toBe(
      hooked.receiver.all.length,
    )
  })

  test('a slow target holds up nobody else', async () => {
    const hooked = await Hooked.start()
    hooked.receiver.answers = (response, { path }) => void (path === '/slow' || response.end())
    await hooked.put({ url: `${hooked.url}slow` }, 'slow')
    await hooked.put()
    await hooked.untilDelivered(await hooked.server.put('doc/1', 'x'))
    await hooked.untilDelivered(await hooked.server.put('doc/2', 'x'))
    expect(hooked.receiver.all.filter(({ path }) => path === '/slow')).toHaveLength(1)
    expect((await hooked.state('slow'))['deliveries']).toBe(0)
  })
})

describe('failures', () => {
  test.each([
    ['an error', 'HTTP 500: not now', (response) => response.writeHead(500).end('not\nnow')],
    ['a redirect', 'HTTP 302', (response) => response.writeHead(302, { location: '/elsewhere' }).end()],
    ['a closed connection', 'socket hang up', (response) => response.destroy()],
    ['no answer', 'no answer within 100 ms', () => {}],
    ['no end of the answer', 'HTTP 500: begins', (response) => void response.writeHead(500).write('begins')],
    ['a long answer', `HTTP 500: ${'x'.repeat(200)}`, (response) => response.writeHead(500).end('x'.repeat(1_000_000))],
  ] satisfies readonly (readonly [string, string, Receiver['answers']])[])(
    'after %s the same batch is sent again, and nothing is left out',
    async (_, error, answers) => {
      const hooked = await Hooked.start()
      const { server, receiver } = hooked
      await hooked.put({ timeout_ms: 100 })
      const take = receiver.answers
      receiver.answers = answers
      const first = await server.put('doc/1', 'x')
      await expect.poll(async () => (await hooked.state())['error']).toBe(error)
      const second = await server.put('doc/2', 'x')
      await expect.poll(() => receiver.all.length).toBeGreaterThan(2)
      expect(await hooked.state()).toMatchObject({ state: 'retrying', failing_up_to: expect.any(Number) })
      receiver.answers = take
      await hooked.untilDelivered(second)
      // Attempts of one batch are alike.
      expect(new Set(receiver.commits)).toEqual(new Set([first, second]))
      const ids = new Map(receiver.all.map(({ headers, body }) => [headers['webhook-id'], body]))
      expect(receiver.all.every(({ headers, body }) => ids.get(headers['webhook-id']) === body)).toBe(true)
      expect(receiver.all.map(({ path }) => path)).not.toContain('/elsewhere')
      await hooked.untilState('running')
      expect(await hooked.state()).toMatchObject({ attempts: 0 })
    },
  )

  test('after many failures it is parked; retry and skip move it on', async () => {
    const lines: Json[] = []
    const log = createLog('info', (line) => void lines.push(JSON.parse(line) as Json))
    const hooked = await Hooked.start({ log })
    const { server, receiver } = hooked
    await hooked.put({ max_attempts: 3, batch: 1 })
    receiver.answers = (response, { txns }) =>
      response.writeHead(JSON.stringify(txns).includes('bad') ? 500 : 200).end('echo of what came')
    const good = await server.put('doc/1', 'good')
    const bad = await server.put('doc/2', 'bad')
    const last = await server.put('doc/3', 'good')
    const parked = await hooked.untilState('parked')
    expect(parked).toMatchObject({ attempts: 3, position: good, failing_up_to: bad, parked_at: expect.any(String) })
    expect(parked).not.toHaveProperty('next_attempt_at')
    const metrics = (await server.get('/metrics')).body
    expect(metrics).toContain('perkv_webhook_stopped{webhook="hook"} 1')
    expect(metrics).toContain('perkv_webhook_failures_total{webhook="hook"} 3')
    await hooked.act('retry')
    await expect.poll(() => receiver.all.length).toBe(7)
    expect(await hooked.untilState('parked')).toMatchObject({ attempts: 3 })
    expect(await hooked.act('skip')).toMatchObject({ state: 'running' })
    await hooked.untilDelivered(last)
    expect(receiver.commits).toEqual([good, bad, bad, bad, bad, bad, bad, last])
    const told = lines.filter(({ webhook }) => webhook === 'hook')
    expect(told.filter(({ msg }) => /has failed/.test(String(msg)))).toHaveLength(2)
    expect(told.filter(({ msg }) => /is parked/.test(String(msg)))).toHaveLength(2)
    expect(JSON.stringify(told)).not.toContain('echo')
    expect(JSON.stringify(lines)).not.toContain(hooked.secret)
  })

  test('410 parks at once, and another url is tried', async () => {
    const hooked = await Hooked.start()
    hooked.receiver.answers = (response, { path }) => void response.writeHead(path === '/new' ? 200 : 410).end()
    await hooked.put()
    const commitTs = await hooked.server.put('doc/1', 'x')
    expect(await hooked.untilState('parked')).toMatchObject({ attempts: 1, error: 'HTTP 410' })
    expect(await hooked.put({ url: `${hooked.url}new` })).toMatchObject({ state: 'running' })
    await hooked.untilDelivered(commitTs)
  })

  test('Retry-After of 503 puts the next attempt off', async () => {
    const hooked = await Hooked.start()
    hooked.receiver.answers = (response) => void response.writeHead(503, { 'retry-after': '600' }).end()
    await hooked.put()
    await hooked.server.put('doc/1', 'x')
    const { next_attempt_at: at } = await hooked.untilState('retrying')
    expect(Date.parse(String(at)) - Date.now()).toBeGreaterThan(300_000)
    expect(hooked.receiver.all).toHaveLength(1)
  })

  test('a target that cannot be reached', async () => {
    const hooked = await Hooked.start()
    await hooked.put()
    await hooked.receiver.close()
    await hooked.server.put('doc/1', 'x')
    await expect.poll(async () => (await hooked.state())['error']).toContain('ECONNREFUSED')
  })
})

describe('a gap', () => {
  test('changes that were collected are told, and a reset goes on', async () => {
    const lines: Json[] = []
    const log = createLog('info', (line) => void lines.push(JSON.parse(line) as Json))
    const hooked = await Hooked.start({ log })
    const { server, receiver } = hooked
    receiver.answers = (response) => void response.writeHead(503, { 'retry-after': '3600' }).end()
    await hooked.put()
    await server.put('doc/1', 'x')
    await hooked.untilState('retrying')
    await server.ok('gc', { safe_point: await server.store.tso(1) }) // Asks no consumer.
    await hooked.untilState('gap')
    await hooked.act('retry')
    expect(receiver.all).toHaveLength(1)
    expect(await hooked.state()).toMatchObject({ state: 'gap' })
    await expect.poll(() => lines.filter(({ msg }) => /has a gap/.test(String(msg)))).toHaveLength(1)
    receiver.answers = (response) => void response.end()
    expect(await hooked.act('reset')).toMatchObject({ state: 'running' })
    await hooked.untilDelivered(await server.put('doc/2', 'x'))
    expect(receiver.all.at(-1)?.body).toContain('doc/2')
  })

  test('a consumer that was deleted is missing until a reset', async () => {
    const hooked = await Hooked.start()
    await hooked.put()
    okBody(await hooked.server.send('DELETE', '/v1/consumers/webhook.hook'))
    expect(await hooked.put()).toMatchObject({ state: 'gap' })
    await hooked.act('reset')
    await hooked.untilDelivered(await hooked.server.put('doc/1', 'x'))
  })

  test('a reset while a request is in flight holds', async () => {
    const hooked = await Hooked.start()
    const { server, receiver } = hooked
    const answers: (() => void)[] = []
    receiver.answers = (response) => void answers.push(() => response.end())
    await hooked.put()
    const commitTs = await server.put('doc/1', 'x')
    await expect.poll(() => answers.length).toBe(1)
    await hooked.act('reset', { since_ts: commitTs - 1 })
    receiver.answers = (response) => void response.end()
    for (const answer of answers) answer()
    await hooked.untilDelivered(commitTs)
    expect(receiver.commits).toEqual([commitTs, commitTs])
  })
})

describe('calls', () => {
  test('targets that are not allowed, and what a webhook may not be', async () => {
    const hooked = await Hooked.start()
    const put = (body: Json): Promise<Sent> =>
      hooked.server.send('PUT', '/v1/webhooks/hook', { 'content-type': 'application/json' }, JSON.stringify(body))
    for (const url of ['http://127.0.0.1:1/', 'http://user:pass@127.0.0.1/', 'file:///etc/passwd', 'nothing', ''])
      expectProblem(await put({ url, prefix: 'a' }), 'invalid_argument', { field: 'url' })
    for (const secret of ['', 'short', 'whsec_c2hvcnQ=', `whsec_${'!'.repeat(44)}`])
      expectProblem(await put({ url: hooked.url, secret }), 'invalid_argument', { field: 'secret' })
    await hooked.put()
    expectProblem(await put({ url: hooked.url, prefix: 'other/' }), 'already_exists')
    expectProblem(await hooked.server.get('/v1/webhooks/other'), 'not_found')
    for (const action of ['retry', 'skip', 'reset'])
      expectProblem(await hooked.server.post(`/v1/webhooks/other/${action}`, {}), 'not_found')
    expectProblem(await hooked.server.send('DELETE', '/v1/webhooks/other'), 'not_found')
  })

  test('the secret is shown once at most, and may be given', async () => {
    const hooked = await Hooked.start()
    await hooked.put()
    expect(await hooked.put()).not.toHaveProperty('secret')
    expect(JSON.stringify(await hooked.state())).not.toContain('whsec_')
    const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
    expect(await hooked.put({ secret })).not.toHaveProperty('secret')
    await hooked.untilDelivered(await hooked.server.put('doc/1', 'x'))
    expect(hooked.receiver.all.every((received) => isSigned(received, secret))).toBe(true)
  })

  test('the list, and a removal with its consumer', async () => {
    const hooked = await Hooked.start()
    for (const name of ['a', 'b']) await hooked.put({}, name)
    const names = async (): Promise<unknown> =>
      (okBody(await hooked.server.get('/v1/webhooks'))['webhooks'] as Json[]).map(({ name }) => name)
    expect(await names()).toEqual(['a', 'b'])
    okBody(await hooked.server.send('DELETE', '/v1/webhooks/a'))
    expect(await names()).toEqual(['b'])
    expect(okBody(await hooked.server.get('/v1/consumers'))['consumers']).toMatchObject([{ name: 'webhook.b' }])
    await hooked.put({}, 'a')
    expect(await names()).toEqual(['a', 'b'])
  })

  test('without --webhook-targets every call is refused', async () => {
    const server = await start()
    expectProblem(await server.get('/v1/webhooks'), 'forbidden')
    expectProblem(await server.post('/v1/webhooks/hook/retry', {}), 'forbidden')
  })

  test('they take a token without prefixes, and one that may write for changes', async () => {
    const [RW, RO, APP] = ['rw-token-0123456789', 'ro-token-0123456789', 'app-token-0123456789']
    const hooked = await Hooked.start({ tokens: `rw ${RW}\nro ${RO}\nrw ${APP} prefix=doc/\n` })
    const as = (token: string): Headers => ({ authorization: `Bearer ${token}` })
    await hooked.put({}, 'hook', as(RW))
    okBody(await hooked.server.get('/v1/webhooks/hook', as(RO)))
    expectProblem(await hooked.server.post('/v1/webhooks/hook/retry', {}, as(RO)), 'forbidden')
    expectProblem(await hooked.server.get('/v1/webhooks/hook', as(APP)), 'forbidden')
    // Nor is its position for a token with prefixes, though it covers the range.
    const { server } = hooked
    expectProblem(await server.post('/v1/consumers/webhook.hook/ack', { ts: 1 }, as(APP)), 'not_found')
    expectProblem(await server.post('/v1/consumers/webhook.hook/reset', {}, as(APP)), 'not_found')
    expectProblem(await server.send('DELETE', '/v1/consumers/webhook.hook', as(APP)), 'not_found')
    const body = JSON.stringify({ prefix: 'doc/' })
    const json = { ...as(APP), 'content-type': 'application/json' }
    expectProblem(await server.send('PUT', '/v1/consumers/webhook.other', json, body), 'forbidden')
    const positions = [{ consumer: 'webhook.hook', from: 1, ts: 2 }]
    expectProblem(await server.post('/v1/txn', { positions }, as(APP)), 'not_found')
    okBody(await server.get('/v1/consumers/webhook.hook', as(RW)))
  })
})

test('it goes on where it was after a restart', async () => {
  const { receiver, url } = await receive()
  const webhookTargets = allowing(url)
  const hooked = new Hooked(await start({ webhookTargets }), receiver, url)
  await hooked.put()
  const first = await hooked.server.put('doc/1', 'x')
  await hooked.untilDelivered(first)
  receiver.answers = (response) => void response.writeHead(500).end()
  const second = await hooked.server.put('doc/2', 'x')
  await hooked.untilState('retrying')
  await hooked.server.close()
  receiver.answers = (response) => void response.end()
  const { directory } = hooked.server
  const again = new Hooked(await start({ webhookTargets, directory }), receiver, url)
  await again.untilDelivered(second)
  expect([...new Set(receiver.commits)]).toEqual([first, second])
})

test.each([
  ['has been stopped', 'stop'],
  ['is cut off from the table', 'cutOff'],
] as const)(
  'of servers that share a store one delivers; another goes on when it %s',
  { tags: ['long'] },
  async (_, end) => {
    const { receiver, url } = await receive()
    const { servers, time } = await startSeveral(2, { webhookTargets: allowing(url), besideOthers: true })
    const [a, b] = servers as [OneOfSeveral, OneOfSeveral]
    const put = async (server: OneOfSeveral, key: string): Promise<number> => {
      const answer = await server.send('PUT', `/v1/kv/doc%2F${key}`, {}, 'x')
      expect(answer.status, answer.body).toBe(200)
      return Number((JSON.parse(answer.body) as Json)['commit_ts'])
    }
    const state = async (server: OneOfSeveral): Promise<Json> =>
      JSON.parse((await server.send('GET', '/v1/webhooks/hook')).body) as Json
    const until = (server: OneOfSeveral, commitTs: number) =>
      expect
        .poll(async () => Number((await state(server))['position']), { timeout: 20_000 })
        .toBeGreaterThanOrEqual(commitTs)
    const delivers = async (server: OneOfSeveral): Promise<boolean> =>
      (await server.send('GET', '/metrics')).body.includes('perkv_webhook_lag_seconds{webhook="hook"}')
    const hook = JSON.stringify({ url, prefix: 'doc/', ...FAST, max_attempts: 1 })
    const json = { 'content-type': 'application/json' }
    expect((await b.send('PUT', '/v1/webhooks/hook', json, hook)).status).toBe(201)
    const first = await put(a, '1')
    await until(b, first)
    receiver.answers = (response) => void response.writeHead(500).end()
    const second = await put(b, '2')
    for (const server of servers)
      await expect.poll(async () => (await state(server))['state'], { timeout: 20_000 }).toBe('parked')
    const [one, other] = (await delivers(a)) ? [a, b] : [b, a]
    expect([await delivers(one), await delivers(other)]).toEqual([true, false])
    receiver.answers = (response) => void response.end()
    expect((await other.post('/v1/webhooks/hook/retry')).status).toBe(200)
    await until(other, second)
    expect(receiver.commits).toEqual([first, second, second])
    if (end === 'stop') await one.stop()
    else {
      one.cutOff()
      await time.pass(12_000)
      await expect.poll(() => delivers(one)).toBe(false)
      expect(await delivers(other)).toBe(false)
      await time.pass(12_000)
    }
    const third = await put(other, '3')
    await until(other, third)
    expect(await delivers(other)).toBe(true)
    expect(receiver.commits).toEqual([first, second, second, third])
  },
)
