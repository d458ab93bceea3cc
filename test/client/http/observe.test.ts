import { rm } from 'node:fs/promises'
import { afterEach, expect, test, vi } from 'vitest'
import type { Fetch } from '../../../src/client/http/fetch-sender.js'
import { type Change, connect, type Db, type Txn } from '../../../src/client/index.js'
import { connectTo } from '../../coordinator/support.js'
import { startServer, type TestServer, testServers } from '../../http/support.js'
import { type Fate, FaultyNetwork } from './faulty-fetch.js'

const DOCS = { prefix: 'doc/' }
const start = testServers()
const toEnd: (() => unknown)[] = []

afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end()
})

function soon(expectation: () => unknown): Promise<unknown> {
  return vi.waitFor(expectation, { interval: 5 })
}

function atRest(db: Db): Promise<unknown> {
  return soon(async () => {
    expect(await db.observers.get('words')).toMatchObject({ pending: 0, parked: 0 })
  })
}

async function count(txn: Txn, { key, value }: Change): Promise<void> {
  await txn.increment(`runs/${key}`)
  await txn.put(`copy/${key}`, value ?? '')
}

function docs(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `doc/${i}`)
}

test('a run is one request', async () => {
  const server = await start()
  const network = new FaultyNetwork()
  const [db, other] = [await connectTo(server, { fetch: network.fetch }), await connectTo(server)]
  await other.observers.put('words', DOCS)
  for (const key of docs(8)) await other.put(key, 'x')
  const stop = new AbortController()
  const run = async (txn: Txn, { key }: Change): Promise<void> => {
    await txn.put(`out/${key}`, `of ${await txn.get(key)}`)
  }
  const ended = db.observe('words', DOCS, run, { concurrency: 8, signal: stop.signal })
  await atRest(other)
  stop.abort()
  await ended
  const posts = network.calls.filter(({ path }) => path !== '/healthz').map(({ path }) => path)
  const claim = '/v1/observers/words/claim'
  expect(posts.filter((path) => path !== claim).toSorted()).toEqual([
    ...['/v1/observers/words', '/v1/observers/words'], // It is looked up, and registered.
    ...docs(8).map(() => '/v1/percolator/prewrite'),
  ])
  expect(network.countOf(claim)).toBeLessThanOrEqual(9)
})

test('through a bad network each change is run exactly once', { tags: ['long'] }, async () => {
  const server = await start()
  const other = await connectTo(server)
  await other.observers.put('words', DOCS)
  const keys = docs(40)
  for (const key of keys) await other.put(key, 'x')
  const fates: readonly Fate[] = ['lose_answer', 'lose_request', 'twice', 'busy', 'arrive', 'arrive']
  let next = 0
  // Claims whose answers are lost come back when their leases end.
  const network = new FaultyNetwork(() => fates[next++ % fates.length] ?? 'arrive')
  const db = await connectTo(server, { fetch: network.fetch })
  const stop = new AbortController()
  const options = { maxAttempts: 0, backoffMs: 1, leaseMs: 300, signal: stop.signal, onError: () => {} }
  const observed = db.observe('words', DOCS, count, options)
  await atRest(other)
  stop.abort()
  await observed
  expect(await other.batchGet(keys.map((key) => `runs/${key}`))).toEqual(keys.map(() => '1'))
  expect(await other.observers.get('words')).toMatchObject({ acks: 40 })
})

/** A client that the test connects to one server after the other, or to none. */
function follower(): { readonly db: Db; follow(server: TestServer | undefined): Promise<void> } {
  let url: string | undefined
  const fetch: Fetch = (asked, init) => {
    if (url !== undefined) return globalThis.fetch(asked.replace('http://kv.test', url), init)
    const refused = Object.assign(new Error('nobody listens'), { code: 'ECONNREFUSED' })
    return Promise.reject(new TypeError('fetch failed', { cause: refused }))
  }
  return {
    db: connect('http://kv.test', { fetch, retryMs: 100 }),
    async follow(server) {
      url = server && `http://127.0.0.1:${await server.listen()}`
    },
  }
}

test('a restart of the server is waited for; what ran during it runs once', { tags: ['long'] }, async () => {
  const first = await startServer()
  toEnd.push(() => rm(first.directory, { recursive: true, force: true }))
  const { db, follow } = follower()
  await follow(first)
  await db.observers.put('words', DOCS)
  const keys = docs(20)
  for (const key of keys) await db.put(key, 'x')
  let began = 0
  let goOn = (): void => {}
  const gate = new Promise<void>((resolve) => {
    goOn = resolve
  })
  const stop = new AbortController()
  const errors: unknown[] = []
  const run = async (txn: Txn, change: Change): Promise<void> => {
    began++
    await gate
    await count(txn, change)
  }
  const ended = db.observe('words', DOCS, run, {
    ...{ concurrency: 6, leaseMs: 600, signal: stop.signal },
    onError: (error) => errors.push(error),
  })
  await soon(() => expect(began).toBe(6))
  await follow(undefined)
  await first.app.close()
  await first.database.close()
  goOn()
  await soon(() => expect(errors.length).toBeGreaterThan(5)) // All six wait for the server.
  const second = await startServer({ directory: first.directory })
  toEnd.push(async () => {
    await second.app.close()
    await second.database.close()
  })
  await follow(second)
  await atRest(db)
  stop.abort()
  await ended
  expect(await db.batchGet(keys.map((key) => `runs/${key}`))).toEqual(keys.map(() => '1'))
  expect(await db.batchGet(keys.map((key) => `copy/${key}`))).toEqual(keys.map(() => 'x'))
})

test('a stop while a claim waits takes no key away', async () => {
  const server = await start()
  const db = await connectTo(server)
  const stop = new AbortController()
  const ended = db.observe('words', DOCS, () => {}, { signal: stop.signal })
  await soon(async () => expect((await db.observers.get('words')).workers).toHaveLength(1))
  stop.abort()
  await Promise.all([ended, db.put('doc/1', 'x')])
  await soon(async () => {
    expect(await db.observers.claim('words')).toMatchObject([{ key: 'doc/1', attempt: 1 }])
  })
})
