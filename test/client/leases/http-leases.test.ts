import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Connection, connect } from '../../../src/client/index.js'
import { unpack } from '../../http/support.js'

/** What goes over the wire, to a server that answers as the test says, or not at all. */

interface Asked {
  readonly call: string
  readonly body: unknown
}

const LEASE = {
  ...{ name: 'jobs/leader', holder: 'a', fence: 3_677_245_337_305_088, ttl_ms: 60_000 },
  expires_at: '2026-11-23T04:00:00.123Z',
}
const asked: Asked[] = []
let answer: (call: string, response: ServerResponse) => void
let server: ReturnType<typeof createServer>
let db: Connection

const json = (response: ServerResponse, status: number, body: object): void => {
  const type = status < 400 ? 'application/json' : 'application/problem+json'
  response.writeHead(status, { 'content-type': type }).end(JSON.stringify(body))
}

beforeEach(async () => {
  asked.length = 0
  answer = (_, response) => json(response, 200, LEASE)
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = await request.toArray()
    const body = Buffer.concat(chunks)
    const call = `${request.method} ${request.url}`
    if (request.url !== '/healthz') asked.push({ call, body: body.length === 0 ? undefined : unpack(body) })
    answer(call, response)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  db = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { retryMs: 0 })
})
afterEach(async () => {
  server.closeAllConnections()
  server.close()
  await db.close()
})

test('acquire and release', async () => {
  const lease = await db.lease('jobs/leader', { ttlMs: 60_000, waitMs: 5000, holder: 'a' })
  expect(lease).toMatchObject({ name: 'jobs/leader', holder: 'a', fence: LEASE.fence, ttlMs: 60_000 })
  expect(lease.expiresAt).toEqual(new Date(LEASE.expires_at))
  answer = (_, response) => json(response, 200, {})
  await lease.release()
  expect(asked).toEqual([
    { call: 'PUT /v1/leases/jobs%2Fleader', body: { holder: 'a', ttl_ms: 60_000, wait_ms: 5000 } },
    { call: `DELETE /v1/leases/jobs%2Fleader?holder=a&fence=${LEASE.fence}`, body: undefined },
  ])
})

test('a renewal has the fence', { tags: ['long'] }, async () => {
  await db.lease('jobs/leader', { ttlMs: 1500, holder: 'a' })
  while (asked.length < 2) await once(server, 'request')
  expect(asked[1]?.body).toEqual({ holder: 'a', ttl_ms: 1500, fence: LEASE.fence })
})

test('list and get', async () => {
  const one = { ...{ name: 'jobs/leader', holder: 'a', fence: LEASE.fence, ttlMs: 60_000 } }
  const expiresAt = new Date(LEASE.expires_at)
  expect(await db.leases.get('jobs/leader')).toEqual({ ...one, expiresAt })
  answer = (_, response) => json(response, 200, { leases: [LEASE] })
  expect(await db.leases.list({ prefix: 'jobs/ä&' })).toEqual([{ ...one, expiresAt }])
  expect(await db.leases.list()).toHaveLength(1)
  expect(asked.map(({ call }) => call)).toEqual([
    'GET /v1/leases/jobs%2Fleader',
    'GET /v1/leases?prefix=jobs%2F%C3%A4%26',
    'GET /v1/leases',
  ])
})

test('a list reads all pages, and asks for long ones after the first', async () => {
  const cursors = ['b&', undefined]
  answer = (_, response) => json(response, 200, { leases: [LEASE], cursor: cursors.shift() })
  expect(await db.leases.list({ prefix: 'jobs/' })).toHaveLength(2)
  expect(asked.map(({ call }) => call)).toEqual([
    'GET /v1/leases?prefix=jobs%2F',
    'GET /v1/leases?limit=1000&cursor=b%26',
  ])
})

test('a transaction that writes is held to its leases by its prewrite, and one in one request by a check', async () => {
  answer = (call, response) => {
    if (call.startsWith('PUT')) json(response, 200, LEASE)
    else if (call.endsWith('tso')) json(response, 200, { ts: LEASE.fence + 1 })
    else if (call.endsWith('prewrite')) json(response, 200, { min_commit_ts: 0, one_pc_commit_ts: LEASE.fence + 2 })
    else json(response, 200, { start_ts: LEASE.fence + 1, results: [] })
  }
  const lease = await db.lease('jobs/leader', { ttlMs: 60_000 })
  const check = { lease: 'jobs/leader', fence: LEASE.fence }
  await db.transaction((txn) => txn.put('k', 'v'), { leases: [lease] })
  expect(asked.at(-1)).toMatchObject({
    call: 'POST /v1/percolator/prewrite',
    body: { try_one_pc: true, riders: { leases: [check] } },
  })
  await db.transaction(() => {}, { leases: [lease] })
  expect(asked.at(-1)).toEqual({ call: 'POST /v1/txn', body: { checks: [check], ops: [] } })
  await db.atomic({ checks: [check], ops: [{ op: 'get', key: 'k' }] })
  expect(asked.at(-1)?.body).toMatchObject({ checks: [check] })
})

test('a refusal in one request ends the lease', async () => {
  const lease = await db.lease('jobs/leader', { ttlMs: 60_000 })
  answer = (_, response) =>
    json(response, 412, {
      ...{ title: 'Precondition failed', status: 412, code: 'precondition_failed', retryable: false },
      ...{ detail: 'check 0 does not hold', lease: 'jobs/leader', fence: 0, index: 0 },
      failed_checks: [{ index: 0, lease: 'jobs/leader', fence: 0 }],
    })
  const refused = db.atomic({ checks: [{ lease: 'jobs/leader', fence: lease.fence }], ops: [] })
  await expect(refused).rejects.toMatchObject({
    code: 'precondition_failed',
    fields: { lease: 'jobs/leader', fence: 0 },
  })
  expect(lease.signal.reason).toMatchObject({
    fields: { failedChecks: [{ index: 0, lease: 'jobs/leader', fence: 0 }] },
  })
})

test('under a server that stops to answer the signal is aborted', { tags: ['long'] }, async () => {
  const lease = await db.lease('jobs/leader', { ttlMs: 500 })
  answer = () => {}
  await once(lease.signal, 'abort')
  expect(lease.signal.reason).toMatchObject({ code: 'precondition_failed' })
  expect(asked.length).toBeGreaterThan(1)
})

test('the end of the connection does not wait for a server that does not answer', { tags: ['long'] }, async () => {
  await db.lease('jobs/leader', { ttlMs: 60_000 })
  answer = () => {}
  await db.close()
})
