import { afterEach, describe, expect, test, vi } from 'vitest'
import { type BeginOptions, type Db, KvError, type OpenTxn, Undetermined } from '../../src/client/index.js'
import type { RangeOptions } from '../../src/client/key-range.js'
import { Heartbeat } from '../../src/coordinator/heartbeat.js'
import type { TxnHeartBeatRequest } from '../../src/percolator/api.js'
import { collect, connectTo, failureOf } from '../coordinator/support.js'
import { expectProblem, type Json, numberOf, okBody, testServers, unpack } from '../http/support.js'

const start = testServers()

afterEach(() => {
  vi.useRealTimers()
})

const BEAT_MS = 10_000

describe('a heartbeat', () => {
  test('sends the primary, the start_ts and the TTL, whatever else the transaction has', () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
    const beats: TxnHeartBeatRequest[] = []
    const txnHeartBeat = async (request: TxnHeartBeatRequest) => {
      beats.push(request)
      return { lockTtl: request.adviseLockTtl }
    }
    const txn = {
      primary: new Uint8Array([1]),
      startTs: 5,
      mutations: [{ op: 'put' }],
      lockWaitMs: 1,
      signal: undefined,
    }
    const heartbeat = new Heartbeat({ txnHeartBeat }, txn, {
      startedAt: performance.now(),
      ttlMs: 3 * BEAT_MS,
      ageMaxMs: 60_000,
    })
    vi.advanceTimersByTime(BEAT_MS)
    heartbeat.stop()
    expect(beats.map((beat) => Object.keys(beat).sort())).toEqual([['adviseLockTtl', 'primary', 'startTs']])
    expect(beats).toEqual([{ primary: new Uint8Array([1]), startTs: 5, adviseLockTtl: 4 * BEAT_MS }])
  })

  test('of a commit in several requests: the server takes it', { tags: ['long'] }, async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    let isFirstAnswered: () => void = () => {}
    const firstAnswered = new Promise<void>((resolve) => {
      isFirstAnswered = resolve
    })
    const beats: { readonly body: unknown; readonly answer: Promise<Response> }[] = []
    let prewrites = 0
    const db = await connectTo(await start(), {
      fetch: async (url, init) => {
        if (url.endsWith('/txn_heart_beat')) {
          const answer = fetch(url, init)
          beats.push({ body: unpack(init.body as Uint8Array), answer })
          return (await answer).clone()
        }
        if (!url.endsWith('/prewrite')) return fetch(url, init)
        const isFirst = prewrites++ === 0
        if (!isFirst) {
          // The first holds the primary; this one takes its time.
          await firstAnswered
          vi.advanceTimersByTime(4000) // A third of the TTL of 2.3 MiB, 9.2 s.
          await beats[0]?.answer
        }
        const answer = await fetch(url, init)
        if (isFirst) isFirstAnswered()
        return answer
      },
    })
    const txn = await db.begin()
    for (let i = 0; i < 6; i++) await txn.put(`k${i}`, new Uint8Array(400 * 1024))
    await txn.commit()
    await db.close()
    expect([prewrites, beats.length]).toEqual([2, 1])
    expect(Object.keys(beats[0]?.body as Json).sort()).toEqual(['advise_lock_ttl', 'primary', 'start_ts'])
    expect(beats[0]?.body).toMatchObject({ primary: Buffer.from('k0'), start_ts: txn.startTs })
    expect((await beats[0]?.answer)?.status).toBe(200)
  })
})

describe('what the server refuses for good', () => {
  const refused: readonly (readonly [what: string, run: (txn: Pick<OpenTxn, 'put'>) => Promise<void>])[] = [
    ['a key that is too long', (txn) => txn.put('k'.repeat(5000), '1')],
    ['a value that is too long', (txn) => txn.put('k', new Uint8Array(1024 * 1024 + 1))],
  ]
  test.each(refused)('%s is no commit of which nobody knows', async (_, run) => {
    const server = await start()
    const db = await connectTo(server)
    for (const mode of ['optimistic', 'pessimistic'] as const) {
      const failure = await failureOf(db.transaction(run, { mode }))
      expect(failure).not.toBeInstanceOf(Undetermined)
      expect(failure).toBeInstanceOf(KvError)
      expect(failure).toMatchObject({ code: 'payload_too_large' })
    }
    await db.close()
    expect(await server.lockCount()).toBe(0)
  })

  test.each([
    { mode: 'pesimistic' },
    { mode: 'Pessimistic' },
    { mode: null },
    { isolation: 'serialisable' },
    { isolation: '' },
    { lockWaitMs: Number.NaN },
    { lockWaitMs: -1 },
  ])('%o is a mistake', async (options) => {
    const sent: string[] = []
    const db = await connectTo(await start(), {
      fetch: (url, init) => {
        sent.push(url)
        return fetch(url, init)
      },
    })
    const mistaken = options as unknown as BeginOptions
    let runs = 0
    expect(await failureOf(db.begin(mistaken))).toBeInstanceOf(TypeError)
    expect(await failureOf(db.transaction(() => runs++, mistaken))).toBeInstanceOf(TypeError)
    expect([runs, sent]).toEqual([0, []])
  })
})

describe('scans in a transaction with more writes of its own than a page has pairs', () => {
  const nameOf = (i: number): string => `k${String(i).padStart(6, '0')}`

  async function expectScans(txn: OpenTxn, model: ReadonlyMap<string, string>): Promise<void> {
    const sorted = [...model].sort(([a], [b]) => (a < b ? -1 : 1))
    for (const reverse of [false, true]) {
      const scan = async (options: RangeOptions & { readonly limit?: number }): Promise<[unknown, unknown][]> =>
        (await collect(txn.scan({ ...options, reverse }))).map(({ key, value }) => [key, value])
      const inOrder = reverse ? sorted.toReversed() : sorted
      expect(await scan({})).toEqual(inOrder)
      for (const limit of [1, 1000, 1001]) expect(await scan({ limit })).toEqual(inOrder.slice(0, limit))
      for (const [from, to] of [
        [400, 2600],
        [2999, 9000],
      ] as const) {
        const within = inOrder.filter(([key]) => key >= nameOf(from) && key < nameOf(to))
        expect(await scan({ start: nameOf(from), end: nameOf(to) })).toEqual(within)
        expect(await scan({ start: nameOf(from), end: nameOf(to), limit: 3 })).toEqual(within.slice(0, 3))
      }
      const keysOnly = await collect(txn.scan({ reverse, keysOnly: true }))
      expect(keysOnly.map(({ key }) => key)).toEqual(inOrder.map(([key]) => key))
    }
  }

  /** @returns a connection to a server with every third key up to `end`, and a model of it. */
  async function stored(end: number): Promise<{ readonly db: Db; readonly model: Map<string, string> }> {
    const server = await start()
    const model = new Map<string, string>()
    for (let i = 0; i < end; i += 3) model.set(nameOf(i), `stored ${i}`)
    await server.txn({ ops: [...model].map(([key, value]) => ({ op: 'put', key, value })) })
    return { db: await connectTo(server), model }
  }

  test('3000 of them, which overwrite and delete', { tags: ['long'] }, async () => {
    const { db, model } = await stored(4800)
    const txn = await db.begin()
    for (let j = 0; j < 3000; j++) {
      const i = (j * 1009) % 4500 // In no order.
      if (i % 4 === 0) {
        await txn.delete(nameOf(i))
        model.delete(nameOf(i))
      } else {
        await txn.put(nameOf(i), `own ${i}`)
        model.set(nameOf(i), `own ${i}`)
      }
    }
    await expectScans(txn, model)
    await txn.commit()
    await db.close()
  })

  test('deletions of hundreds of pairs beside each other', { tags: ['long'] }, async () => {
    const { db, model } = await stored(1500)
    const txn = await db.begin()
    for (const key of [...model.keys()].slice(20, -20)) {
      await txn.delete(key)
      model.delete(key)
    }
    await expectScans(txn, model)
    await txn.rollback()
    await db.close()
  })

  test('more than a request may ask for', { tags: ['long'] }, async () => {
    const { db } = await stored(30)
    const txn = await db.begin()
    for (let i = 0; i < 100_001; i++) await txn.put(nameOf(i), 'own')
    expect((await collect(txn.scan({ limit: 5 }))).map(({ key }) => key)).toEqual([0, 1, 2, 3, 4].map(nameOf))
    const last = await collect(txn.scan({ limit: 2, reverse: true }))
    expect(last.map(({ key }) => key)).toEqual([nameOf(100_000), nameOf(99_999)])
    await txn.rollback()
    await db.close()
  })
})

describe('an interactive transaction whose commit was refused', () => {
  test.each(['optimistic', 'serializable'])(
    '%s: hears the same again when it repeats the commit',
    { tags: ['long'] },
    async (kind) => {
      const server = await start()
      const begin = async (): Promise<string> => {
        const body = kind === 'serializable' ? { isolation: kind } : { mode: kind }
        return `/v1/txn/${(await server.post('/v1/txn/begin', body)).json<Json>()['txn']}`
      }
      await server.put('read', '1')
      const [first, second] = [await begin(), await begin()]
      for (const txn of [first, second]) {
        await server.get(`${txn}/kv/read`)
        okBody(await server.send('PUT', `${txn}/kv/${kind === 'serializable' ? txn.slice(8) : 'both'}`, {}, txn))
      }
      if (kind === 'serializable') await server.put('read', '2')
      else okBody(await server.post(`${first}/commit`, {}))
      const refused = await server.post(`${second}/commit`, {})
      const problem = expectProblem(refused, 'write_conflict')
      for (let i = 0; i < 2; i++)
        expect(expectProblem(await server.post(`${second}/commit`, {}), 'write_conflict')).toEqual(problem)
      expect(okBody(await server.get(second))).toMatchObject({ state: 'rolled_back' })
      okBody(await server.post(`${second}/rollback`, {}))
      expectProblem(await server.get(`${second}/kv/read`), 'txn_not_found')
      if (kind === 'optimistic') {
        const ts = numberOf(okBody(await server.post(`${first}/commit`, {})), 'commit_ts')
        expect((await server.get('/v1/kv/both')).headers['etag']).toBe(`"${ts}"`)
      }
    },
  )
})
