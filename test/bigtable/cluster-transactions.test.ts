import { afterAll, expect, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

const { seed } = settings({ seed: 1, txns: 0, kills: 0 })

interface Answered {
  readonly status: number
  readonly body: Record<string, unknown>
}

async function call(
  url: string,
  method: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answered> {
  const json = body === undefined ? {} : { 'content-type': 'application/json' }
  const answer = await fetch(url, {
    method,
    headers: { ...json, ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : { text } }
}

interface Seen {
  readonly server: string
  readonly servers: readonly { readonly id: string; readonly url: string }[]
}

async function statusOf(url: string): Promise<Seen> {
  const { body } = await call(`${url}/v1/status`, 'GET')
  return body as unknown as Seen
}

async function until(is: () => Promise<boolean>): Promise<void> {
  while (!(await is())) await new Promise((later) => setTimeout(later, 100))
}

test('transactions live in one server and are used through any, while servers are killed and stopped', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  const random = new Random(seed)
  const emulator = await startEmulator({ failBefore: 0.02, failAfter: 0.02, late: 0.01 })
  const cluster = await Cluster.start(emulator.host, 3, random.fork())
  const [a, b, c] = cluster.urls as [string, string, string]
  const begin = async (url: string): Promise<string> => {
    const { status, body } = await call(`${url}/v1/txn/begin`, 'POST', {})
    expect(status).toBe(201)
    return String(body['txn'])
  }
  try {
    await until(async () => (await Promise.all([a, b, c].map(statusOf))).every(({ servers }) => servers.length === 3))
    const { server: idOfA, servers } = await statusOf(a)
    expect(servers.map(({ url }) => url).sort()).toEqual([a, b, c].sort())

    // Through any of them.
    const txns = await Promise.all([a, b, c].map(begin))
    await Promise.all(
      txns.map(async (txn, i) => {
        const any = (): string => `${cluster.url}/v1/txn/${txn}`
        for (let k = 0; k < 5; k++) {
          const put = await call(`${any()}/ops`, 'POST', { ops: [{ op: 'put', key: `k${i}/${k}`, value: `${k}` }] })
          expect(put).toMatchObject({ status: 200 })
        }
        expect((await call(`${any()}/kv?prefix=k${i}/`, 'GET')).body).toMatchObject({ pairs: { length: 5 } })
        expect(await call(`${any()}/commit`, 'POST', {})).toMatchObject({ status: 200 })
      }),
    )
    const { body: all } = await call(`${cluster.url}/v1/kv?prefix=k`, 'GET')
    expect(all).toMatchObject({ pairs: { length: 15 } })

    // A pin is of all.
    const pin = (await call(`${a}/v1/admin/pins`, 'POST', {})).body['pin']
    expect((await call(`${b}/v1/admin/pins`, 'GET')).body).toMatchObject({ pins: [{ pin }] })
    expect(await call(`${c}/v1/admin/pins/${pin}`, 'PUT', { ttl_ms: 60_000 })).toMatchObject({ status: 200 })
    expect(await call(`${b}/v1/admin/pins/${pin}`, 'DELETE')).toMatchObject({ status: 200 })
    expect((await call(`${a}/v1/admin/pins`, 'GET')).body).toEqual({ pins: [] })

    // The owner is killed, with requests on their way.
    const key = { 'idempotency-key': 'once' }
    const done = await begin(a)
    await call(`${b}/v1/txn/${done}/ops`, 'POST', { ops: [{ op: 'put', key: 'done', value: '1' }] })
    const committed = await call(`${b}/v1/txn/${done}/commit`, 'POST', {}, key)
    expect(committed).toMatchObject({ status: 200 })
    const lost = await begin(a)
    const onTheirWay = Array.from({ length: 20 }, (_, i) =>
      call(`${random.pick([b, c])}/v1/txn/${lost}/ops`, 'POST', { ops: [{ op: 'put', key: `x${i}`, value: '1' }] }),
    )
    await cluster.kill(0)
    for (const { status, body } of await Promise.all(onTheirWay))
      if (status !== 200) expect(body).toMatchObject({ code: 'txn_not_found', server: idOfA })
    for (const url of [b, c]) {
      expect(await call(`${url}/v1/txn/${lost}`, 'GET')).toMatchObject({ status: 404, body: { server: idOfA } })
      expect(await call(`${url}/v1/txn/${lost}/commit`, 'POST', {})).toMatchObject({
        status: 404,
        body: { server: idOfA },
      })
      expect(await call(`${url}/v1/txn/${done}/commit`, 'POST', {}, key)).toEqual(committed)
    }

    // The owner stands still: it is given up after 20 s, and comes back.
    await until(async () => (await call(`${b}/v1/txn/begin`, 'POST', {})).status === 201) // Somebody hands out timestamps again.
    const still = await begin(b)
    const { server: idOfB } = await statusOf(b)
    const began = performance.now()
    const paused = cluster.pause(1, 35_000)
    const onTime = call(`${c}/v1/txn/${still}/kv/done?timeout_ms=300`, 'GET')
    const read = call(`${c}/v1/txn/${still}/kv/done`, 'GET')
    const commit = call(`${c}/v1/txn/${still}/commit`, 'POST', {})
    expect(await onTime).toMatchObject({ status: 504, body: { code: 'deadline_exceeded' } })
    expect(await read).toMatchObject({ status: 404, body: { code: 'txn_not_found', server: idOfB } })
    expect(await commit).toMatchObject({ status: 503, body: { code: 'storage_unavailable' } })
    const givenUpMs = Math.round(performance.now() - began)
    expect((await statusOf(c)).servers.map(({ url }) => url)).toEqual([c])
    await paused
    await until(async () => (await statusOf(c)).servers.length === 2)
    const again = await begin(b)
    expect(await call(`${c}/v1/txn/${again}`, 'GET')).toMatchObject({ status: 200, body: { state: 'open' } })
    report({ test: 'cluster-transactions', seed, givenUpMs })
  } finally {
    await cluster.end()
    await emulator.stop()
  }
})
