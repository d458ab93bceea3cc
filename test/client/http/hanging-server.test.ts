import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type Connection, connect, isUncertain, Undetermined } from '../../../src/client/index.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { connectTo, failureOf } from '../../coordinator/support.js'
import { type TestServer, testServers } from '../../http/support.js'

/** A server that takes connections and requests, and answers none: as one that was stopped by SIGSTOP. */

const start = testServers()
const TIMED = { timeoutMs: 20 }
const ends: (() => Promise<unknown>)[] = []

/** A time that passes when the test says so. */
const AWHILE = { timeoutMs: 500_000 }
const GRACE_MS = 250
let passTime = (): void => {}

function isTimed(): void {
  const { setTimeout } = globalThis
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(((call: () => void, ms = 0) => {
    if (ms < AWHILE.timeoutMs) return setTimeout(call, ms === GRACE_MS ? 0 : ms)
    passTime = call
    return setTimeout(() => {})
  }) as typeof setTimeout)
}

afterEach(async () => {
  vi.restoreAllMocks()
  for (const end of ends.splice(0)) await end()
})

async function hanging(): Promise<string> {
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}))
    socket.resume()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  ends.push(async () => {
    for (const socket of sockets) socket.destroy()
    await once(server.close(), 'close')
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

interface Call {
  readonly run: (db: Connection) => Promise<unknown>
  /** Whether it may have changed something. */
  readonly isUncertain: boolean
}
const reads: Readonly<Record<string, Call['run']>> = {
  get: (db) => db.get('k', TIMED),
  getVersion: (db) => db.getVersion('k', TIMED),
  batchGet: (db) => db.batchGet(['k'], TIMED),
  scan: async (db) => {
    for await (const _ of db.scan(TIMED));
  },
  count: (db) => db.count({ prefix: '', ...TIMED }),
  snapshot: (db) => db.snapshot(undefined, TIMED),
  'get of a snapshot': async (db) => (await db.snapshot(5, TIMED)).get('k'),
  transaction: (db) => db.transaction((txn) => txn.put('k', 'v'), TIMED),
  'pessimistic transaction': (db) => db.transaction((txn) => txn.getForUpdate('k'), { ...TIMED, mode: 'pessimistic' }),
  deleteRange: (db) => db.deleteRange({ prefix: 'k', ...TIMED }),
  begin: (db) => db.begin(TIMED),
  'begin, in the time of connect': (db) => db.begin(),
  watch: (db) => db.watch('k').next(),
  'watch of a key that no path can name': (db) => db.watch('..').next(),
  changes: (db) => db.changes().next(),
  'changes from a position': (db) => db.changes({ sinceTs: 5 }).next(),
  countAsOf: (db) => db.countAsOf({ prefix: '', ...TIMED }),
  status: (db) => db.status(TIMED),
  locks: (db) => db.locks(TIMED).next(),
  mvcc: (db) => db.mvcc('k', TIMED),
  'atomic that reads': (db) => db.atomic({ ops: [{ op: 'get', key: 'k' }, { op: 'scan' }] }, TIMED),
  'get of an observer': (db) => db.observers.get('o', TIMED),
  'list of observers': (db) => db.observers.list(TIMED),
  'parked keys': (db) => db.observers.parked('o', TIMED).next(),
  'get of a consumer': (db) => db.consumers.get('c', TIMED),
  'list of consumers': (db) => db.consumers.list(TIMED),
  'get of a lease': (db) => db.leases.get('l', TIMED),
  'list of leases': (db) => db.leases.list(TIMED),
}
const writes: Readonly<Record<string, Call['run']>> = {
  put: (db) => db.put('k', 'v', TIMED),
  'put of a key that no path can name': (db) => db.put('..', 'v', TIMED),
  'put with a condition': (db) => db.put('k', 'v', { ...TIMED, ifAbsent: true }),
  delete: (db) => db.delete('k', TIMED),
  touch: (db) => db.touch('k', { persist: true, ...TIMED }),
  atomic: (db) =>
    db.atomic(
      {
        ops: [
          { op: 'get', key: 'k' },
          { op: 'delete', key: 'k' },
        ],
      },
      TIMED,
    ),
  'atomic of a position': (db) => db.atomic({ positions: [{ consumer: 'c', from: 0, ts: 1 }] }, TIMED),
  'put of an observer': (db) => db.observers.put('o', { prefix: 'k' }, TIMED),
  'delete of an observer': (db) => db.observers.delete('o', TIMED),
  extend: (db) => db.observers.extend('o', [], TIMED),
  release: (db) => db.observers.release('o', [], TIMED),
  notify: (db) => db.observers.notify('o', 'k'),
  retry: (db) => db.observers.retry('o', ['k'], TIMED),
  skip: (db) => db.observers.skip('o', ['k'], TIMED),
  backfill: (db) => db.observers.backfill('o', TIMED),
  pause: (db) => db.observers.pause('o', TIMED),
  resume: (db) => db.observers.resume('o', TIMED),
  claim: (db) => db.observers.claim('o', { waitMs: 1, ...TIMED }),
  'put of a consumer': (db) => db.consumers.put('c', {}, TIMED),
  'delete of a consumer': (db) => db.consumers.delete('c', TIMED),
  ack: (db) => db.consumers.ack('c', 1, TIMED),
  reset: (db) => db.consumers.reset('c', TIMED),
  observe: (db) => db.observe('o', { prefix: 'k' }, () => {}),
  lease: (db) => db.lease('l', { ttlMs: 60_000, waitMs: 1, ...TIMED }),
}
const CALLS: Readonly<Record<string, Call>> = {
  ...Object.fromEntries(Object.entries(reads).map(([name, run]) => [name, { run, isUncertain: false }])),
  ...Object.fromEntries(Object.entries(writes).map(([name, run]) => [name, { run, isUncertain: true }])),
}

test('every call ends in its time, and says whether its outcome is known', { tags: ['long'] }, async () => {
  const db = connect(await hanging(), TIMED)
  const endings = Object.entries(CALLS).map(async ([name, { run, isUncertain: isUnknown }]) => {
    const failure = await failureOf(run(db))
    expect(failure, name).toMatchObject({ name: 'KvError', code: 'deadline_exceeded' })
    expect(isUncertain(failure), name).toBe(isUnknown)
  })
  await Promise.all(endings)
  await db.close()
})

test('a write that was never sent has an outcome: nothing', async () => {
  isTimed()
  const refused = Object.assign(new Error('nobody listens'), { code: 'ECONNREFUSED' })
  const fetch = async (): Promise<never> => {
    setImmediate(() => passTime()) // While it waits to send it again.
    throw new TypeError('fetch failed', { cause: refused })
  }
  const db = connect('http://127.0.0.1:1', { fetch, connectTimeoutMs: 60_000, retryMs: 60_000 })
  const failure = await failureOf(db.put('k', 'v', AWHILE))
  expect(failure).toMatchObject({ code: 'deadline_exceeded' })
  expect(isUncertain(failure)).toBe(false)
})

interface Held {
  readonly db: Connection
  readonly server: TestServer
  readonly store: TestServer['store']
  /** Requests for this call are carried out, and their answers are held back. @returns once one was carried out. */
  hold(call: string): Promise<void>
  release(): void
  locks(): Promise<number>
}

/** A server that is real up to some call. */
async function held(options: { readonly timeoutMs?: number } = {}): Promise<Held> {
  isTimed()
  const server = await start()
  let call = ' '
  let release = (): void => {}
  let released = Promise.resolve()
  let onHeld = (): void => {}
  const db = await connectTo(server, {
    ...options,
    fetch: async (url, init) => {
      const isHeld = url.endsWith(call)
      const { signal, ...rest } = init
      const answer = fetch(url, isHeld ? rest : { ...rest, ...(signal && { signal }) })
      if (!isHeld) return answer
      await answer
      onHeld()
      const aborted = new Promise((_, reject) => {
        signal?.addEventListener('abort', () => reject(signal.reason))
      })
      await Promise.race([released, aborted])
      return answer
    },
  })
  return {
    db,
    server,
    store: server.store,
    hold: (name) => {
      call = name
      released = new Promise((resolve) => {
        release = resolve
      })
      return new Promise((resolve) => {
        onHeld = resolve
      })
    },
    release: () => {
      call = ' '
      release()
    },
    locks: async () => (await server.store.scanLock({ maxTs: TIMESTAMP_MAX })).locks.length,
  }
}

describe('a transaction', () => {
  test('that has begun in the time of connect: each of its reads has that', async () => {
    const { db, hold, release } = await held(AWHILE)
    await db.put('k', 'v')
    const txn = await db.begin()
    const reads: Readonly<Record<string, () => Promise<unknown>>> = {
      '/get': () => txn.get('k'),
      '/scan': () => txn.scan().next(),
      '/batch_get': () => txn.batchGet(['k']),
    }
    for (const [call, read] of Object.entries(reads)) {
      const isSent = hold(call)
      const failure = failureOf(read())
      await isSent
      passTime()
      expect(await failure).toMatchObject({ code: 'deadline_exceeded', mayHaveTakenEffect: false })
      release()
    }
    expect(await txn.get('k')).toBe('v')
    await txn.rollback()
  })

  test('whose commit may be decided by then: nobody knows, and a further commit finds out', {
    tags: ['long'],
  }, async () => {
    const { db, hold, release } = await held()
    const txn = await db.begin(AWHILE)
    await txn.put('k', 'v')
    const isSent = hold('/prewrite')
    const failure = failureOf(txn.commit())
    await isSent
    passTime()
    expect(await failure).toBeInstanceOf(Undetermined)
    release()
    const commitTs = await txn.commit()
    expect(await db.getVersion('k')).toMatchObject({ value: 'v', commitTs })
  })

  test('of a function, whose commit may be decided by then: nobody knows', { tags: ['long'] }, async () => {
    const { db, hold, release } = await held()
    const isSent = hold('/prewrite')
    const failure = failureOf(db.transaction((txn) => txn.put('k', 'v'), AWHILE))
    await isSent
    passTime()
    expect(await failure).toBeInstanceOf(Undetermined)
    release()
  })

  test('in two phases, whose commit was not sent by then: it never commits', { tags: ['long'] }, async () => {
    const { db, hold, release, locks } = await held()
    const txn = await db.begin(AWHILE)
    for (let i = 0; i < 300; i++) await txn.put(`k${i}`, new Uint8Array(4096))
    const isSent = hold('/tso')
    const failure = failureOf(txn.commit())
    await isSent
    passTime()
    expect(await failure).toMatchObject({ code: 'deadline_exceeded', mayHaveTakenEffect: false })
    release()
    await vi.waitUntil(async () => (await locks()) === 0, { timeout: 30_000 })
    expect(await db.count()).toBe(0)
  })

  test('that waits for the answer to a lock request: the lock is not left behind', async () => {
    const { db, hold, locks } = await held()
    const isSent = hold('/acquire_pessimistic_lock')
    const locking = failureOf(db.transaction((txn) => txn.put('k', 'v'), { mode: 'pessimistic', ...AWHILE }))
    await isSent
    expect(await locks()).toBe(1)
    passTime()
    expect(await locking).toMatchObject({ code: 'deadline_exceeded', mayHaveTakenEffect: false })
    await vi.waitUntil(async () => (await locks()) === 0, { timeout: 30_000 })
    await db.put('k', 'other', { lockWaitMs: 0 })
  })

  test('that is rolled back when its time is over: the rollback ends', async () => {
    const { db, hold, release } = await held()
    const txn = await db.begin({ mode: 'pessimistic', ...AWHILE })
    await txn.put('k', 'v')
    void hold('/pessimistic_rollback')
    passTime()
    await txn.rollback()
    release()
    await db.put('k', 'other')
  })
})
