import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeServer, encodeServer } from '../../src/cluster/server-record.js'
import { isKvError } from '../../src/errors/kv-error.js'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { SimulatedServer, type Simulation, simulate } from './simulated-registries.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 30)
const SECOND = 1000

async function three(seed = 1): Promise<Simulation & { a: SimulatedServer; b: SimulatedServer; c: SimulatedServer }> {
  const simulation = await simulate(seed, 3)
  const [a, b, c] = simulation.servers as [SimulatedServer, SimulatedServer, SimulatedServer]
  return { ...simulation, a, b, c }
}

const idsSeenBy = ({ registry }: SimulatedServer): string[] => registry.servers().map(({ id }) => id)
const ALL = ['server-0', 'server-1', 'server-2']

test('servers know each other, and one that has joined just now is found at once', async () => {
  const { a, b, c, pass, over, world, rows } = await three()
  await pass(5 * SECOND)
  for (const server of [a, b, c]) expect(idsSeenBy(server)).toEqual(ALL)
  expect(a.registry.servers()[1]).toMatchObject({ url: 'http://server-1:7400' })
  expect(a.registry.servers().every(({ silentMs }) => silentMs < 6 * SECOND)).toBe(true)
  const late = new SimulatedServer(world, rows, 'server-late')
  await over(late.registry.join(late.oldest))
  expect(await over(a.registry.find('server-late'))).toMatchObject({ url: 'http://server-late:7400' })
  expect(await over(a.registry.find('server-none'))).toBeUndefined()
})

describe('another server with the same URL', () => {
  const url = 'http://server-0:7400'

  /** @returns the ids of which the server is told. */
  async function joined(simulation: Simulation, id: string): Promise<{ server: SimulatedServer; twins: string[] }> {
    const twins: string[] = []
    const { world, rows, over } = simulation
    const server = new SimulatedServer(world, rows, id, { url, onTwin: (twin) => twins.push(twin) })
    await over(server.registry.join(server.oldest))
    return { server, twins }
  }

  test('that is alive is told to the one that came later, once', async () => {
    const simulation = await three()
    const early = await joined(simulation, 'early') // Its URL is that of server-0.
    await simulation.pass(9 * SECOND)
    expect(early.twins).toEqual(['server-0'])
    await simulation.pass(60 * SECOND)
    expect(early.twins).toEqual(['server-0'])
  })

  test('that joins at once is told to one of them at least, though both have looked before', async () => {
    const simulation = await three()
    const { world, rows, over, pass } = simulation
    const twins: string[] = []
    const both = ['left', 'right'].map(
      (id) => new SimulatedServer(world, rows, id, { url: 'http://both:7400', onTwin: (twin) => twins.push(twin) }),
    )
    await over(Promise.all(both.map(({ registry }) => registry.look())))
    await over(Promise.all(both.map(({ registry, oldest }) => registry.join(oldest))))
    await pass(9 * SECOND)
    expect(twins).not.toEqual([])
  })

  test('that was killed, or stops, or comes later, is not', async () => {
    const simulation = await three()
    const { a, over, pass, rows } = simulation
    a.process.isAlive = false
    const again = await joined(simulation, 'again')
    await pass(3 * SECOND)
    // The last beat of the earlier one lands late.
    const record = decodeServer(rows.rows.get('server/server-0') as Uint8Array)
    if (record === undefined) throw new Error('no record')
    rows.rows.set('server/server-0', encodeServer({ ...record, beat: record.beat + 1 }))
    await pass(40 * SECOND)
    expect(again.twins).toEqual([])
    const later = await joined(simulation, 'later')
    await pass(3 * SECOND)
    expect(later.twins.length + again.twins.length).toBeLessThanOrEqual(1)
    await over(later.server.registry.leave())
    await pass(40 * SECOND)
    expect(again.twins).toEqual([])
  })
})

test('what a server cannot reach stands in its row', async () => {
  const simulation = await three()
  const { world, rows, over, pass, a } = simulation
  let unreached = 0
  const lost = new SimulatedServer(world, rows, 'lost', {
    ofLeader: () => ({ unreachedEpoch: unreached, knowsTime: true }),
  })
  await over(lost.registry.join(lost.oldest))
  await pass(5 * SECOND)
  expect(a.registry.others().map(({ unreachedEpoch }) => unreachedEpoch)).toEqual([0, 0, 0])
  expect(
    a.registry
      .others()
      .map(({ knowsTime, isAlive }) => knowsTime && isAlive)
      .sort(),
  ).toEqual([false, false, true])
  unreached = 7
  await pass(6 * SECOND)
  expect(
    a.registry
      .others()
      .map(({ unreachedEpoch }) => unreachedEpoch)
      .sort(),
  ).toEqual([0, 0, 7])
  lost.process.isAlive = false
  await pass(30 * SECOND)
  expect(a.registry.others()).toHaveLength(2)
})

test('the oldest snapshot is that of the others, as it is now', async () => {
  const { a, b, c, over } = await three()
  expect(await over(a.registry.oldest())).toBe(TIMESTAMP_MAX)
  b.holds.add({ ts: 500 })
  c.holds.add({ ts: 300 })
  await over(Promise.all([b.registry.publish(), c.registry.publish()]))
  expect(await over(a.registry.oldest())).toBe(300)
  expect(await over(c.registry.oldest())).toBe(500)
})

test('one that was killed is forgotten after 20 s, and not before', async () => {
  const { a, b, c, pass, over, rows } = await three()
  b.holds.add({ ts: 100 })
  await pass(10 * SECOND)
  const gone = (await over(a.registry.find('server-1')))?.gone
  b.process.isAlive = false
  await pass(16 * SECOND)
  expect(idsSeenBy(a)).toEqual(ALL)
  expect(await over(a.registry.oldest())).toBe(100)
  expect(gone?.aborted).toBe(false)
  await pass(10 * SECOND)
  for (const server of [a, c]) expect(idsSeenBy(server)).toEqual(['server-0', 'server-2'])
  expect(rows.rows.has('server/server-1')).toBe(false)
  expect(await over(a.registry.oldest())).toBe(TIMESTAMP_MAX)
  expect(await over(a.registry.find('server-1'))).toBeUndefined()
  expect(gone?.aborted).toBe(true)
})

test('one that stands still for 30 s is forgotten, and makes its row anew', async () => {
  const { a, b, pass, over } = await three()
  b.process.pause(30 * SECOND)
  await pass(29 * SECOND)
  expect(idsSeenBy(a)).toEqual(['server-0', 'server-2'])
  b.holds.add({ ts: 7 })
  await pass(8 * SECOND)
  expect(idsSeenBy(a)).toEqual(ALL)
  expect(await over(a.registry.oldest())).toBe(7)
  expect(idsSeenBy(b)).toEqual(ALL) // Its own pause is no silence of the others.
})

test('one that stops cleanly is gone at once, and leaves no row', async () => {
  const { a, b, pass, over, rows } = await three()
  await over(b.registry.leave())
  expect([...rows.rows.keys()].sort()).toEqual(['server/server-0', 'server/server-2'])
  await pass(4 * SECOND)
  expect(idsSeenBy(a)).toEqual(['server-0', 'server-2'])
  await expect(over(b.registry.publish())).rejects.toMatchObject({ code: 'storage_unavailable' })
})

test('a row that nobody can read stops collections, until it is forgotten', async () => {
  const { a, rows, over, pass } = await three()
  rows.rows.set('server/strange', new TextEncoder().encode('{"url": 5}'))
  await expect(over(a.registry.oldest())).rejects.toMatchObject({ code: 'storage_unavailable' })
  expect(await over(a.registry.find('strange'))).toBeUndefined()
  await pass(30 * SECOND)
  expect(await over(a.registry.oldest())).toBe(TIMESTAMP_MAX)
})

test('records keep what they have, and fields of later versions do not hurt', () => {
  const record = { url: 'http://a:1', oldest: 5, safePoint: 3, unreachedEpoch: 4, knowsTime: true, format: 2, beat: 9 }
  expect(decodeServer(encodeServer(record))).toEqual(record)
  const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
  expect(decodeServer(bytes('{"url":"http://a","oldest":1,"safe_point":0,"beat":1,"more":[]}'))).toMatchObject({
    format: 1,
    beat: 1,
  })
  for (const bad of [
    '',
    '[]',
    'null',
    '{"url":"x","oldest":1,"safe_point":0,"beat":1}',
    '{"url":"http://a","oldest":-1}',
  ])
    expect(decodeServer(bytes(bad)), bad).toBeUndefined()
  expect(decodeServer(bytes(`{"url":"http://${'a'.repeat(9000)}"}`))).toBeUndefined()
})

test('while the table is away nobody is forgotten, and what needs the others fails', async () => {
  const { a, rows, pass, over } = await three()
  await pass(5 * SECOND)
  rows.faults = { ...rows.faults, isTableAway: true }
  await pass(60 * SECOND)
  await expect(over(a.registry.oldest())).rejects.toMatchObject({ code: 'storage_unavailable' })
  await expect(over(a.registry.publish())).rejects.toMatchObject({ code: 'storage_unavailable' })
  expect(idsSeenBy(a)).toEqual(ALL)
  rows.faults = { ...rows.faults, isTableAway: false }
  await pass(10 * SECOND)
  expect(idsSeenBy(a)).toEqual(ALL)
})

const FAULTS = [
  {},
  { fails: 0.1 },
  { landsLate: 0.2 },
  { loses: 0.1 },
  { slow: 0.2 },
  { fails: 0.1, landsLate: 0.1, loses: 0.05, slow: 0.1 },
]

test('whatever gets lost: a snapshot that a server was granted is not passed by a collection of another', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  let granted = 0
  let raised = 0
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.constantFrom(...FAULTS), async (seed, faults) => {
      const { world, rows, servers, pass } = await simulate(seed, 3)
      rows.faults = { ...rows.faults, ...faults }
      const promised = new Set<{ readonly ts: number }>()
      const broken: string[] = []
      let safePoint = 0
      /** As `Pins` refuses what is below a collection of its own server. */
      const floors = new Map<SimulatedServer, number>()
      const hold = async (server: SimulatedServer): Promise<void> => {
        const held = { ts: safePoint + Math.floor(world.between(0, 20)) }
        if (held.ts < (floors.get(server) ?? 0)) return
        server.holds.add(held)
        try {
          await server.registry.publish()
          if (held.ts >= (await server.registry.announced())) {
            granted++
            if (held.ts < safePoint) broken.push(`${held.ts} < ${safePoint}, and was granted`)
            promised.add(held)
            await new Promise<void>((later) => world.after(world.between(0, 3000), later))
          }
        } catch (error) {
          if (!isKvError(error, 'storage_unavailable')) throw error
        }
        promised.delete(held)
        server.holds.delete(held)
      }
      const collecting = new Set<SimulatedServer>()
      const collect = async (server: SimulatedServer): Promise<void> => {
        if (collecting.has(server)) return
        collecting.add(server)
        await collectOnce(server)
        collecting.delete(server)
      }
      const collectOnce = async (server: SimulatedServer): Promise<void> => {
        const wanted = safePoint + Math.floor(world.between(0, 20))
        try {
          await server.registry.announce(wanted)
          const elsewhere = await server.registry.oldest()
          const decided = Math.min(wanted, elsewhere, server.oldest())
          floors.set(server, Math.max(decided, floors.get(server) ?? 0))
          await server.registry.announce(Math.max(decided, safePoint))
          if (decided <= safePoint) return
          safePoint = decided
          raised++
          for (const { ts } of promised) if (ts < decided) broken.push(`${ts} < ${decided}`)
        } catch (error) {
          if (!isKvError(error, 'storage_unavailable')) throw error
        }
      }
      for (let i = 0; i < 80; i++) {
        const server = world.oneOf(servers)
        if (world.happens(0.6)) void hold(server)
        else void collect(server)
        await pass(world.between(0, 10))
      }
      await pass(30 * SECOND)
      expect(broken).toEqual([])
    }),
    { numRuns: RUNS },
  )
  expect(granted).toBeGreaterThan(RUNS)
  expect(raised).toBeGreaterThan(RUNS)
})

test('a job runs on one server, and moves on when that stops, dies or stands still', async () => {
  const { a, b, c, pass, over } = await three()
  const bodies: string[] = []
  const long = (server: SimulatedServer, name: string) => {
    let end: () => void = () => {}
    const state: { signal?: AbortSignal } = {}
    const done = server.registry.lead('gc', async (signal) => {
      bodies.push(name)
      state.signal = signal
      await new Promise<void>((resolve) => {
        end = resolve
        signal.addEventListener('abort', () => resolve())
      })
      return name
    })
    return { done, end: () => end(), state }
  }
  const first = long(a, 'a')
  await pass(SECOND)
  expect(await over(b.registry.lead('gc', async () => 'b'))).toBeUndefined()
  expect(await over(a.registry.lead('gc', async () => 'a again'))).toBeUndefined()
  await pass(60 * SECOND) // It beats.
  expect(await over(b.registry.lead('gc', async () => 'b'))).toBeUndefined()
  expect(first.state.signal?.aborted).toBe(false)
  first.end()
  expect(await over(first.done)).toBe('a')
  expect(await over(b.registry.lead('gc', async () => 'b'))).toBe('b')

  const killed = long(a, 'killed')
  await pass(SECOND)
  a.process.isAlive = false
  void killed
  await pass(15 * SECOND)
  expect(await over(b.registry.lead('gc', async () => 'b'))).toBeUndefined()
  await pass(10 * SECOND)
  const stopped = long(b, 'stopped')
  await pass(SECOND)
  expect(bodies).toEqual(['a', 'killed', 'stopped'])
  b.process.pause(40 * SECOND)
  await pass(30 * SECOND)
  expect(await over(c.registry.lead('gc', async () => 'c'))).toBe('c')
  await pass(12 * SECOND)
  expect(stopped.state.signal?.aborted).toBe(true)
  expect(await over(stopped.done)).toBe('stopped')
  expect(await over(c.registry.lead('gc', async () => 'c'))).toBe('c')
})

test('whatever gets lost, no two servers that are not stopped do a job at once without being told', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  let ran = 0
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.constantFrom(...FAULTS), async (seed, faults) => {
      const { world, rows, servers, pass } = await simulate(seed, 3)
      rows.faults = { ...rows.faults, ...faults }
      const running = new Set<{ readonly server: SimulatedServer; readonly signal: AbortSignal }>()
      const together: string[] = []
      let isOver = false
      const work = async (server: SimulatedServer): Promise<void> => {
        while (!isOver) {
          const job = server.registry.lead('gc', async (signal) => {
            const one = { server, signal }
            for (const other of running)
              if (!other.signal.aborted && !other.server.process.isPaused) together.push(`at ${world.nowMs}`)
            running.add(one)
            ran++
            await new Promise<void>((later) => world.after(world.between(10, 30 * SECOND), later))
            running.delete(one)
          })
          await job.catch(() => {})
          await new Promise<void>((later) => world.after(world.between(10, 3000), later))
        }
      }
      for (const server of servers) void work(server)
      const accident = (): void => {
        if (isOver) return
        const { process } = world.oneOf(servers)
        if (world.happens(0.5)) process.pause(world.between(100, 40 * SECOND))
        else {
          rows.faults = { ...rows.faults, isTableAway: true }
          world.after(world.between(100, 30 * SECOND), () => {
            rows.faults = { ...rows.faults, isTableAway: false }
          })
        }
        world.after(world.between(SECOND, 60 * SECOND), accident)
      }
      accident()
      await pass(300 * SECOND)
      isOver = true
      expect(together).toEqual([])
    }),
    // The server stands still between the write of the job's row and its answer.
    { numRuns: Math.ceil(RUNS / 3), examples: [[2135499949, { slow: 0.2 }]] },
  )
  expect(ran).toBeGreaterThan(RUNS)
})
