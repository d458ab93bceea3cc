import { rm } from 'node:fs/promises'
import { afterEach, describe, expect, test } from 'vitest'
import {
  expectProblem,
  type Json,
  listOf,
  Machine,
  numberOf,
  startServer,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

const HOUR_MS = 3_600_000

/** Ages go by time alone: neither `tso` nor the wall clock adds to them. */
describe.each<[string, (server: TestServer, machine: Machine) => Promise<void>]>([
  ['tso pushes timestamps as far as it can', pushTime],
  [
    'the clock jumps an hour forward',
    async (server, machine) => {
      machine.step(HOUR_MS)
      await server.ok('tso', {})
    },
  ],
  [
    'the clock jumps to 2030, and back',
    async (server, machine) => {
      const { wallMs } = machine
      machine.step(Date.UTC(2030, 0) - wallMs)
      await server.ok('tso', {})
      machine.pass(5)
      machine.step(wallMs - Date.UTC(2030, 0))
      await server.ok('tso', {})
    },
  ],
])('when %s', (_, disturb) => {
  async function disturbed(prepare: (server: TestServer, machine: Machine) => Promise<void>) {
    const machine = new Machine()
    const server = await start({ now: machine.now, monotonicNow: machine.monotonicNow })
    await prepare(server, machine)
    machine.pass(200)
    await disturb(server, machine)
    machine.pass(200)
    return { server, machine }
  }

  test('an idempotent request runs once', async () => {
    const headers = { 'content-type': 'application/json', 'idempotency-key': 'once' }
    const body = JSON.stringify({ ops: [{ op: 'increment', key: 'n', by: 1 }] })
    const send = (server: TestServer) => server.send('POST', '/v1/txn', headers, body)
    const { server, machine } = await disturbed(async (server) => {
      expect((await send(server)).statusCode).toBe(200)
    })
    await server.collectOutcomes()
    expect((await send(server)).headers['idempotency-replayed']).toBe('true')
    expect((await server.get('/v1/kv/n')).body).toBe('1')
    machine.pass(12 * 60_000) // It is forgotten in time all the same, also by a clock that goes slower.
    expect((await send(server)).headers['idempotency-replayed']).toBeUndefined()
  })

  test('a pin lives, and what it holds', async () => {
    let pin: Json = {}
    let first = 0
    const { server, machine } = await disturbed(async (server) => {
      first = await server.put('k', 'old')
      pin = (await server.post('/v1/admin/pins', { ttl_ms: 600_000 })).json<Json>()
      await server.put('k', 'new')
    })
    await server.post('/v1/admin/gc', { life_time_ms: 0 })
    const { pins } = (await server.get('/v1/admin/pins')).json<{ pins: Json[] }>()
    expect(pins).toMatchObject([{ pin: pin['pin'] }])
    expect(
      Date.parse(String(pins[0]?.['expires_at'])) - numberOf(await server.ok('tso', {}), 'now') / 2048,
    ).toBeCloseTo(600_000 - 400, -2)
    expect((await server.get(`/v1/kv/k?ts=${String(pin['ts'])}`)).body).toBe('old')
    expect(first).toBeLessThan(Number(pin['ts']))
    machine.pass(700_000)
    expect((await server.get('/v1/admin/pins')).json<{ pins: Json[] }>().pins).toEqual([])
  })

  test('a collection keeps what could be read a moment ago', async () => {
    let ts = 0
    const { server } = await disturbed(async (server) => {
      await server.put('k', 'old')
      ts = numberOf(await server.ok('tso', {}), 'ts')
      await server.put('k', 'new')
    })
    await server.post('/v1/admin/gc', { life_time_ms: 10_000 })
    expect((await server.get(`/v1/kv/k?ts=${ts}`)).body).toBe('old')
  })

  for (const [kind, rest] of [
    ['a lock', {}],
    ['a lock of async commit', { use_async_commit: true, secondaries: ['b'] }],
  ] as const)
    test(`${kind} that lives is not stolen, one that is over its TTL is`, async () => {
      let startTs = 0
      const { server, machine } = await disturbed(async (server) => {
        await server.put('a', 'before')
        startTs = numberOf(await server.ok('tso', {}), 'ts')
        await server.lock(startTs, ['a'], { lock_ttl: 3000, ...rest })
      })
      expectProblem(await server.send('PUT', '/v1/kv/a?lock_wait_ms=0', {}, 'theirs'), 'key_locked')
      const { ts, now } = await server.ok('tso', {})
      const status = (current_ts: unknown) =>
        server.ok('check_txn_status', { primary: 'a', lock_ts: startTs, caller_start_ts: 0, current_ts })
      expect(await status(ts)).toMatchObject({ status: 'locked' })
      const [lock] = listOf(await server.ok('scan_lock', { max_ts: ts }), 'locks')
      // Whoever counts for himself, by the clock that comes with `tso`, comes to the same.
      expect(startTs / 2048 + Number(lock?.['ttl'])).toBeGreaterThanOrEqual(Math.floor(Number(now) / 2048))
      expectProblem(await server.call('cleanup', { key: 'a', start_ts: startTs, current_ts: ts }), 'key_locked')

      machine.pass(4000) // At the slower pace too it is 3000 then.
      expect((await server.send('PUT', '/v1/kv/a', {}, 'theirs')).statusCode).toBe(200)
    })

  test('a pessimistic lock that lives is waited for', async () => {
    let startTs = 0
    const lockA = (ts: number) => ({ keys: ['a'], primary: 'a', start_ts: ts, for_update_ts: ts, lock_ttl: 5000 })
    const { server } = await disturbed(async (server) => {
      startTs = numberOf(await server.ok('tso', {}), 'ts')
      await server.ok('acquire_pessimistic_lock', lockA(startTs))
    })
    expectProblem(await server.send('PUT', '/v1/kv/a?lock_wait_ms=0', {}, 'theirs'), 'key_locked')
    await server.ok('txn_heart_beat', { primary: 'a', start_ts: startTs, advise_lock_ttl: 6000 })
    const ts = numberOf(await server.ok('tso', {}), 'ts')
    const late = await server.call('acquire_pessimistic_lock', { ...lockA(ts), wait_timeout: -1 })
    expectProblem(late, 'key_locked')
  })

  test('a heartbeat says how long its transaction still lives', async () => {
    let startTs = 0
    const { server, machine } = await disturbed(async (server) => {
      startTs = numberOf(await server.ok('tso', {}), 'ts')
      await server.lock(startTs, ['a'], { lock_ttl: 3000 })
    })
    machine.pass(1600) // It is 2 s old.
    await server.ok('txn_heart_beat', { primary: 'a', start_ts: startTs, advise_lock_ttl: 5000 })
    machine.pass(2000)
    expectProblem(await server.send('PUT', '/v1/kv/a?lock_wait_ms=0', {}, 'theirs'), 'key_locked')
    machine.pass(4000)
    expect((await server.send('PUT', '/v1/kv/a', {}, 'theirs')).statusCode).toBe(200)
  })
})

/** As many timestamps as it gives at once. */
async function pushTime(server: TestServer): Promise<void> {
  for (let isOver = false; !isOver; ) {
    const answer = await Promise.race([
      server.call('tso', { count: 500_000 }),
      new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 50)),
    ])
    isOver = answer === undefined
  }
}

describe('a clock that was set back', () => {
  test('an hour: locks of dead clients go in time', async () => {
    const machine = new Machine()
    const server = await start({ now: machine.now, monotonicNow: machine.monotonicNow })
    await server.put('a', '1')
    machine.step(-HOUR_MS)
    const startTs = numberOf(await server.ok('tso', {}), 'ts')
    await server.lock(startTs, ['a'], { lock_ttl: 1000 })
    machine.pass(1200)
    expect((await server.send('PUT', '/v1/kv/a', {}, '2')).statusCode).toBe(200)
  })

  test('while the server was down: timestamps go on from the last, and locks go in time', async () => {
    const machine = new Machine()
    const first = await startServer({ now: machine.now, monotonicNow: machine.monotonicNow })
    const before = await first.put('a', '1')
    await first.app.close()
    await first.store.close()
    machine.step(-HOUR_MS)
    const server = await start({ ...machine, directory: first.directory })
    const startTs = numberOf(await server.ok('tso', {}), 'ts')
    expect(startTs).toBeGreaterThan(before)
    await server.lock(startTs, ['a'], { lock_ttl: 1000 })
    machine.pass(1200)
    expect((await server.send('PUT', '/v1/kv/a', {}, '2')).statusCode).toBe(200)
  })
})

describe('a start under a wrong clock', () => {
  const directories: string[] = []
  afterEach(async () => {
    for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true })
  })
  async function stopped(machine: Machine, directory?: string): Promise<string> {
    const server = await startServer({ ...machine, ...(directory && { directory }) })
    await server.put('k', 'v')
    await server.app.close()
    await server.store.close()
    return server.directory
  }

  test('of 2030: later starts work, and go on from there', async () => {
    const machine = new Machine()
    const { wallMs } = machine
    const directory = await stopped(machine)
    machine.wallMs = Date.UTC(2030, 0)
    await stopped(machine, directory)
    machine.wallMs = wallMs
    const server = await start({ ...machine, directory })
    const ts = numberOf(await server.ok('tso', {}), 'ts')
    expect(ts / 2048).toBeGreaterThan(Date.UTC(2030, 0))
    await server.lock(ts, ['a'], { lock_ttl: 1000 })
    machine.pass(1200)
    expect((await server.send('PUT', '/v1/kv/a', {}, '2')).statusCode).toBe(200)
  })

  test('of 2120: it is refused before anything is written, and later starts work', async () => {
    const machine = new Machine()
    const { wallMs } = machine
    const directory = await stopped(machine)
    machine.wallMs = Date.UTC(2120, 0)
    await expect(startServer({ ...machine, directory })).rejects.toThrow(
      /^the clock of this machine says 2120, and timestamps end in 2109: set the clock$/,
    )
    machine.wallMs = wallMs
    const server = await start({ ...machine, directory })
    expect((await server.get('/v1/kv/k')).body).toBe('v')
  })
})

describe('tso', () => {
  test('runs at most 5 s ahead of the clock; beyond that it waits, and answers overloaded after 3 s', {
    tags: ['long'],
  }, async () => {
    const machine = new Machine()
    const server = await start({ now: machine.now, monotonicNow: machine.monotonicNow })
    const answers = await Promise.all(
      Array.from({ length: 30 }, async () => {
        const begin = performance.now()
        const answer = await server.call('tso', { count: 1_000_000 })
        return { answer, tookMs: performance.now() - begin }
      }),
    )
    let last = 0
    for (const { answer, tookMs } of answers)
      if (answer.statusCode === 200) {
        last = Math.max(last, answer.json<{ ts: number }>().ts)
      } else {
        expectProblem(answer, 'overloaded')
        expect(answer.headers['retry-after']).toBeDefined()
        expect(tookMs).toBeGreaterThan(2900)
      }
    expect(last / 2048 - machine.wallMs).toBeLessThanOrEqual(5000)
    expect(last / 2048 - machine.wallMs).toBeGreaterThan(3000)
    expect(answers.some(({ answer }) => answer.statusCode === 503)).toBe(true)

    // All others go on.
    const begin = performance.now()
    const { ts, now } = await server.ok('tso', {})
    expect(ts).toBeGreaterThan(last)
    expect(Number(now) / 2048 - machine.wallMs).toBeLessThan(1)
    const commitTs = await server.put('k', 'v')
    expect(commitTs).toBeGreaterThan(Number(ts))
    expect(await server.txn({ ops: [{ op: 'increment', key: 'n', by: 1 }] })).toMatchObject({
      results: [{ value: '1' }],
    })
    expect((await server.get('/v1/kv/k')).body).toBe('v')
    await server.remove('k')
    expect(performance.now() - begin).toBeLessThan(1000)
  })

  test('goes on as soon as the clock is there', async () => {
    const machine = new Machine()
    const server = await start({ now: machine.now, monotonicNow: machine.monotonicNow })
    await pushTime(server)
    machine.pass(5000)
    expect((await server.call('tso', { count: 1_000_000 })).statusCode).toBe(200)
  }, 20_000)
})
