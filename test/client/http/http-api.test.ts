import { describe, expect, test } from 'vitest'
import { keyText } from '../../../src/bytes/key-text.js'
import { HttpApi } from '../../../src/client/http/http-api.js'
import { HttpTransport } from '../../../src/client/http/http-transport.js'
import { KvError } from '../../../src/errors/kv-error.js'
import type { LockInfo } from '../../../src/errors/lock-info.js'
import type { PercolatorApi, PrewriteRequest } from '../../../src/percolator/api.js'
import { type TestServer, testServers } from '../../http/support.js'

/** The calls over HTTP answer what they answer in process: same data, same errors. */

const start = testServers()
const KEY = new Uint8Array([0, 255, 128])
const OTHER = new Uint8Array([1])
const VALUE = new Uint8Array(300).fill(255)
/** Beyond 32 bits. */
const TS = 2 ** 45 + 1

async function connected(): Promise<{ server: TestServer; api: HttpApi }> {
  const server = await start()
  const port = await server.listen()
  return { server, api: new HttpApi(new HttpTransport(`http://127.0.0.1:${port}`)) }
}

function put(startTs: number, rest: Partial<PrewriteRequest> = {}): PrewriteRequest {
  const mutations = [{ op: 'put', key: KEY, value: VALUE } as const, { op: 'put', key: OTHER, value: VALUE } as const]
  return { mutations, primary: KEY, startTs, lockTtl: 3000, ...rest }
}

/** Bytes as text, so that it doesn't matter whether they are a Buffer. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return `bytes ${keyText(value)}`
  if (value instanceof KvError) {
    const { code, message, fields, errors } = value
    return {
      code,
      // The server says for how much longer a lock stands, which a store does not, and which is another time for another call.
      message: message.replace(/, with \d+ ms left/, ''),
      fields: plain(fields),
      errors: errors?.map((entry) => plain({ ...entry.fields, code: entry.code })),
    }
  }
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([, field]) => field !== undefined)
  return Object.fromEntries(entries.map(([name, field]) => [name, plain(field)]))
}

async function outcome(call: () => unknown): Promise<unknown> {
  try {
    return plain(await call())
  } catch (error) {
    if (error instanceof KvError) return plain(error)
    throw error
  }
}

describe('answers what the store answers', () => {
  type Ask = (api: PercolatorApi) => unknown
  /** Calls that may be made twice. In process first, then over HTTP. */
  async function expectSame({ server, api }: { server: TestServer; api: HttpApi }, ask: Ask): Promise<unknown> {
    const inProcess = await outcome(() => ask(server.store))
    expect(await outcome(() => ask(api))).toEqual(inProcess)
    return inProcess
  }

  test('a transaction in two phases, its readers and its history', async () => {
    const both = await connected()
    const { api } = both
    expect(await api.prewrite(put(TS))).toEqual({})
    const locked = { code: 'key_locked', fields: { lock: { startTs: TS, ttl: 3000, type: 'put', secondaries: [] } } }
    expect(await expectSame(both, (any) => any.get({ key: KEY, ts: TS + 2 }))).toMatchObject(locked)
    await expectSame(both, (any) => any.batchGet({ keys: [OTHER, KEY], ts: TS + 2 }))
    await expectSame(both, (any) => any.scan({ limit: 10, ts: TS + 2 }))
    await expectSame(both, (any) => any.scanLock({ maxTs: TS + 2 }))
    await expectSame(both, (any) => any.txnHeartBeat({ primary: KEY, startTs: TS, adviseLockTtl: 9000 }))
    await expectSame(both, (any) =>
      any.checkTxnStatus({ primary: KEY, lockTs: TS, callerStartTs: 0, currentTs: TS, verifyIsPrimary: true }),
    )
    await expectSame(both, (any) => any.cleanup({ key: KEY, startTs: TS, currentTs: TS }))

    expect(await api.commit({ keys: [KEY, OTHER], startTs: TS, commitTs: TS + 1, primary: KEY })).toEqual({
      commitTs: TS + 1,
    })
    expect(await api.get({ key: KEY, ts: TS + 2 })).toEqual({ found: true, value: VALUE, commitTs: TS + 1 })
    await expectSame(both, (any) => any.get({ key: KEY }))
    await expectSame(both, (any) => any.get({ key: KEY, ts: TS }))
    await expectSame(both, (any) => any.batchGet({ keys: [OTHER, KEY], ts: TS + 2 }))
    await expectSame(both, (any) => any.scan({ start: OTHER, limit: 10, ts: TS + 2, keyOnly: true, reverse: true }))
    await expectSame(both, (any) => any.mvccGetByKey({ key: KEY }))
    await expectSame(both, (any) => any.mvccGetByStartTs({ startTs: TS, start: OTHER }))
    await expectSame(both, (any) => any.checkSecondaryLocks({ keys: [OTHER], startTs: TS }))
    await expectSame(both, (any) => any.rollback({ keys: [KEY], startTs: TS }))
    await expectSame(both, (any) => any.commit({ keys: [KEY], startTs: 5, commitTs: 6 }))
    await api.deleteRange({ start: KEY, end: OTHER })
    expect(await api.get({ key: KEY })).toEqual({ found: false })
  })

  test('every entry of a failed prewrite', async () => {
    const both = await connected()
    await both.api.prewrite(put(TS))
    const failed = await expectSame(both, (any) => any.prewrite(put(TS + 5)))
    expect(failed).toMatchObject({ code: 'key_locked', errors: [{ lock: { startTs: TS } }, { lock: { startTs: TS } }] })
    await both.api.rollback({ keys: [KEY, OTHER], startTs: TS })
    const conflict = { code: 'write_conflict', fields: { reason: 'self_rolled_back', startTs: TS } }
    expect(await expectSame(both, (any) => any.prewrite(put(TS)))).toMatchObject(conflict)
  })

  test('one phase, and async commit', async () => {
    const { api } = await connected()
    const { onePcCommitTs } = await api.prewrite(put(TS, { tryOnePc: true }))
    expect(onePcCommitTs).toBeGreaterThan(TS)
    const startTs = await api.tso(1)
    const { minCommitTs = 0 } = await api.prewrite(put(startTs, { useAsyncCommit: true, secondaries: [OTHER] }))
    expect(minCommitTs).toBeGreaterThan(startTs)
    const { locks } = await api.checkSecondaryLocks({ keys: [OTHER], startTs })
    expect(locks.map(({ key, useAsyncCommit }: LockInfo) => ({ key, useAsyncCommit }))).toEqual([
      { key: OTHER, useAsyncCommit: true },
    ])
  })

  test('now is the clock, however far timestamps are ahead of it', async () => {
    const { api, server } = await connected()
    const ts = await server.store.tso(2048 * 4000)
    const now = await api.now()
    expect(ts - now).toBeGreaterThan(2048 * 1000)
    expect(Math.abs(now / 2048 - Date.now())).toBeLessThan(60_000)
  })

  test('resolveLock: of single keys, of one transaction, of many', async () => {
    const { api } = await connected()
    for (const startTs of [TS, TS + 10]) {
      await api.prewrite(put(startTs))
      const txns = [{ startTs, commitTs: startTs + 1 }]
      expect(await api.resolveLock({ txns, keys: [OTHER], isDecided: true })).toEqual({ resolved: 1 })
      expect(await api.resolveLock({ txns: [...txns, { startTs: 7, commitTs: 0 }] })).toEqual({ resolved: 1 })
      expect(await api.get({ key: KEY, ts: startTs + 1 })).toMatchObject({ found: true })
    }
  })

  test('pessimistic locks and their roll back', async () => {
    const both = await connected()
    const { api } = both
    const startTs = await api.tso(1)
    const lock = { keys: [KEY], primary: KEY, startTs, forUpdateTs: startTs, lockTtl: 3000 }
    await expectSame(both, (any) => any.acquirePessimisticLock({ ...lock, returnValues: true }))
    const other = { ...lock, startTs: startTs + 1, forUpdateTs: startTs + 1, waitTimeout: -1 }
    const refused = await expectSame(both, (any) => any.acquirePessimisticLock(other))
    expect(refused).toMatchObject({ code: 'key_locked', fields: { lock: { startTs, type: 'pessimistic' } } })
    await expectSame(both, (any) => any.pessimisticRollback({ keys: [KEY], startTs, forUpdateTs: startTs }))
    expect(await api.scanLock({ maxTs: startTs + 10 })).toEqual({ locks: [] })
  })

  test('validateReads', async () => {
    const both = await connected()
    const { api } = both
    const startTs = await api.tso(1)
    const reads = { keys: [KEY], ranges: [{ start: OTHER }] }
    await expectSame(both, (any) => any.validateReads({ ...reads, startTs, commitTs: startTs + 1 }))
    const { onePcCommitTs: commitTs = 0 } = await api.prewrite(put(await api.tso(1), { tryOnePc: true }))
    const conflict = await expectSame(both, (any) => any.validateReads({ ...reads, startTs, commitTs: commitTs + 1 }))
    expect(conflict).toMatchObject({ code: 'write_conflict', fields: { reason: 'serializable_read' } })
  })

  test('timestamps, many at once', async () => {
    const { api } = await connected()
    const first = await api.tso(1)
    expect(await api.tso(1000)).toBeGreaterThanOrEqual(first + 1000)
  })
})

describe('withSignal', () => {
  test('cuts off reads, and never what ends a transaction', async () => {
    const { api } = await connected()
    const startTs = await api.tso(1)
    await api.prewrite(put(startTs))
    const aborted = api.withSignal(AbortSignal.abort(new Error('enough')))
    await expect(aborted.get({ key: KEY })).rejects.toThrow('enough')
    await expect(aborted.tso(1)).rejects.toThrow('enough')
    await aborted.rollback({ keys: [KEY, OTHER], startTs })
    expect(await api.scanLock({ maxTs: startTs })).toEqual({ locks: [] })
  })
})
