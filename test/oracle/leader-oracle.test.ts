import { describe, expect, test } from 'vitest'
import { KvError } from '../../src/errors/kv-error.js'
import type { LeaderOracle } from '../../src/oracle/leader-oracle.js'
import { decodeOracleRecord, encodeOracleRecord, type OracleRow } from '../../src/oracle/oracle-row.js'
import { AskFailed } from '../../src/oracle/signed-ask.js'
import { ASK_COUNT_MAX, type OracleForward } from '../../src/oracle/timestamp-ask.js'
import { LOGICAL_PER_MS, physicalMs, type Timestamp, timestampFromMs } from '../../src/timestamp.js'
import { leaderOracle, type OracleParts, Servers, START_MS } from './simulated-servers.js'

interface Wraps {
  readonly row?: (row: OracleRow, parts: OracleParts) => OracleRow
  readonly forward?: (forward: OracleForward, parts: OracleParts) => OracleForward
  /** Nobody asks the others before it leads. */
  readonly isUnproved?: boolean
  readonly others?: (others: OracleParts['others'], oracle: () => LeaderOracle) => OracleParts['others']
}

/** Servers on one table, whose clocks are right. The first that is asked leads. */
class Group {
  readonly servers: Servers
  readonly oracles: LeaderOracle[] = []

  constructor(count: number, wraps: Wraps = {}, bytes?: Uint8Array, seed = 1) {
    this.servers = new Servers(
      seed,
      (parts) => {
        const row = wraps.row?.(parts.row, parts) ?? parts.row
        const forward = wraps.forward?.(parts.forward, parts) ?? parts.forward
        const others = wraps.others?.(parts.others, () => oracle) ?? parts.others
        const oracle: LeaderOracle = leaderOracle({
          ...parts,
          ...{ row, forward, others },
          ...(wraps.isUnproved && { isReached: async () => undefined }),
        })
        this.oracles.push(oracle)
        return oracle
      },
      0,
    )
    this.servers.table.bytes = bytes
    for (let i = 0; i < count; i++) this.add()
  }

  add(url = `http://server-${this.servers.all.length}`): LeaderOracle {
    const server = this.servers.add(url)
    return server.run.oracle as LeaderOracle
  }

  oracle(i: number): LeaderOracle {
    return this.oracles[i] as LeaderOracle
  }

  /** @returns what the call comes to within `ms`; `pending` when it has not ended. */
  async within<T>(ms: number, call: T | Promise<T>): Promise<T | Error | 'pending'> {
    let outcome: T | Error | 'pending' = 'pending'
    Promise.resolve(call).then(
      (value) => {
        outcome = value
      },
      (error: Error) => {
        outcome = error
      },
    )
    await this.run(ms)
    return outcome
  }

  /** As `within`, of a call that has to succeed. */
  async timestamp(call: Timestamp | Promise<Timestamp>, ms = 100): Promise<Timestamp> {
    const outcome = await this.within(ms, call)
    expect(outcome).toBeTypeOf('number')
    return outcome as Timestamp
  }

  run(ms: number): Promise<void> {
    return this.servers.world.runUntil(this.servers.world.nowMs + ms)
  }

  get nowMs(): number {
    return START_MS + Math.floor(this.servers.world.nowMs)
  }

  get record() {
    return decodeOracleRecord(this.servers.table.bytes as Uint8Array)
  }

  get roles(): string[] {
    return this.oracles.map(({ role }) => role.role)
  }
}

/** A group whose first server leads and whose others know it. */
async function settled(count: number, wraps?: Wraps): Promise<Group> {
  const group = new Group(1, wraps)
  await group.timestamp(group.oracle(0).next())
  for (let i = 1; i < count; i++) group.add()
  await group.run(600)
  return group
}

function storageUnavailable(message: RegExp) {
  return expect.objectContaining({ code: 'storage_unavailable', message: expect.stringMatching(message) })
}

function record(fields: object = {}): Uint8Array {
  return encodeOracleRecord({ epoch: 4, url: 'http://gone', id: 'gone', mark: 0, beat: 9, ...fields })
}

describe('the leader', () => {
  test('of an empty table hands out consecutive timestamps by its clock, below the mark', async () => {
    const group = new Group(1)
    expect(group.oracle(0).role).toEqual({ role: 'candidate', leader: undefined, epoch: 0 })
    const first = await group.timestamp(group.oracle(0).next())
    expect(physicalMs(first)).toBeGreaterThanOrEqual(START_MS)
    expect(physicalMs(first)).toBeLessThan(group.nowMs + 1)
    expect(group.oracle(0).role).toEqual({ role: 'leader', leader: 'http://server-0', epoch: 1 })
    const both = Promise.all([group.oracle(0).next(1000), group.oracle(0).next()])
    const [many, one] = (await group.within(100, both)) as Timestamp[]
    expect(one).toBe((many as Timestamp) + 1)
    expect(group.record.mark).toBeGreaterThan(one as Timestamp)
    expect(group.oracle(0).last).toBe(one)
  })

  test('reads the row once for all that wait, and again for those that come during the read', async () => {
    let reads = 0
    const group = await settled(1, {
      row: (row) => ({ swap: row.swap, read: () => row.read().finally(() => reads++) }),
    })
    const { world } = group.servers
    reads = 0
    const calls = Array.from({ length: 50 }, () => group.oracle(0).next())
    await world.runUntil(world.nowMs + 0.1)
    calls.push(...Array.from({ length: 50 }, () => group.oracle(0).next()))
    const all = (await group.within(30, Promise.all(calls))) as Timestamp[]
    expect(new Set(all).size).toBe(100)
    expect(reads).toBe(2)
  })

  test('gives timestamps without a proof at once, each of them to nobody else, while it believes to lead', async () => {
    const group = await settled(2)
    const [leader, follower] = [group.oracle(0), group.oracle(1)]
    expect(follower.unproved()).toBeUndefined()
    const own = leader.unproved() as Timestamp
    expect(own).toBeGreaterThan(0)
    expect(await group.timestamp(leader.next())).toBeGreaterThan(own)
    // It sleeps through the end of its lead, and wakes without a look at the row.
    const late: (Timestamp | undefined)[] = []
    group.servers.all[0]?.run.process.pause(4500)
    for (let i = 0; i < 60 && follower.role.role !== 'leader'; i++) await group.run(50)
    const other = follower.unproved() as Timestamp
    for (let i = 0; i < 3; i++) late.push(leader.unproved())
    expect(follower.role).toMatchObject({ role: 'leader', epoch: 2 })
    expect(late.every((ts) => ts !== undefined && ts > own && ts < other)).toBe(true)
    expect(new Set(late).size).toBe(3)
    await group.run(3000)
    expect(leader.unproved()).toBeUndefined()
  })

  test('gives none without a proof from the mark on', async () => {
    const group = await settled(1)
    await group.timestamp(group.oracle(0).next(ASK_COUNT_MAX), 500)
    let given = 0
    while (group.oracle(0).unproved() !== undefined) given++
    expect(group.oracle(0).last).toBe(group.record.mark - 1)
    expect(given).toBeGreaterThan(0)
    await group.timestamp(group.oracle(0).next(), 500)
    expect(group.oracle(0).unproved()).toBeDefined()
  })

  test('saves the mark half a second apart, three seconds ahead', async () => {
    const group = await settled(1)
    const before = group.record
    await group.run(10_000)
    expect(group.record.beat - before.beat).toBeGreaterThanOrEqual(18)
    expect(group.record.beat - before.beat).toBeLessThanOrEqual(20)
    expect(physicalMs(group.record.mark) - group.nowMs).toBeGreaterThan(2400)
    expect(physicalMs(group.record.mark) - group.nowMs).toBeLessThanOrEqual(3000)
  })

  test('saves a mark before it hands out what is above the one before', async () => {
    const group = await settled(1)
    const counts = Array.from({ length: 9 }, () => ASK_COUNT_MAX)
    const all = await group.within(500, Promise.all(counts.map((count) => group.oracle(0).next(count))))
    expect(all).toHaveLength(9)
    expect(group.record.mark).toBeGreaterThan((all as Timestamp[])[8] as Timestamp)
  })

  test('keeps the lead when its own save lands late', async () => {
    let isLate = false
    const group = await settled(1, {
      row: (row, { world }) => ({
        read: row.read,
        swap: async (expected, next) => {
          if (!isLate) return row.swap(expected, next)
          isLate = false
          world.after(300, () => void row.swap(expected, next))
          return 'unknown'
        },
      }),
    })
    for (let i = 0; i < 5; i++) {
      isLate = true
      await group.run(3000)
      expect(group.oracle(0).role).toMatchObject({ role: 'leader', epoch: 1 })
      expect(physicalMs(group.record.mark)).toBeGreaterThan(group.nowMs)
    }
  })

  test('refuses counts that are none', async () => {
    const group = await settled(1)
    for (const count of [0, -1, 1.5, Number.NaN, ASK_COUNT_MAX + 1])
      expect(await group.within(50, group.oracle(0).next(count))).toMatchObject({ code: 'invalid_argument' })
    const asks = [
      { count: -1, floor: 0 },
      { count: ASK_COUNT_MAX + 1, floor: 0 },
      { count: 1, floor: 1.5 },
    ]
    for (const ask of asks)
      expect(await group.within(50, group.oracle(0).answer(ask))).toMatchObject({ code: 'invalid_argument' })
  })
})

describe('a follower', () => {
  test('gets timestamps from the leader', async () => {
    const group = await settled(3)
    expect(group.roles).toEqual(['leader', 'follower', 'follower'])
    let before = 0
    for (let i = 0; i < 30; i++) {
      const ts = await group.timestamp(group.oracle(i % 3).next(), 40)
      expect(ts).toBeGreaterThan(before)
      expect(group.oracle(i % 3).last).toBe(ts)
      before = ts
    }
    expect(group.record.epoch).toBe(1)
  })

  test('asks once for all that wait, and splits the answer', async () => {
    const asks: unknown[] = []
    const group = await settled(2, {
      forward: (forward) => (url, ask, signal) => {
        asks.push(ask)
        return forward(url, ask, signal)
      },
    })
    const oracle = group.oracle(1)
    const first = oracle.next(3)
    await group.servers.world.runUntil(group.servers.world.nowMs + 0.01)
    const floor = timestampFromMs(group.nowMs)
    const calls = [oracle.next(5), oracle.observe(floor - 1), oracle.next(), oracle.observe(floor), oracle.next(2)]
    const [five, , one, , two] = (await group.within(100, Promise.all(calls))) as Timestamp[]
    expect(asks).toEqual([
      { count: 3, floor: 0 },
      { count: 8, floor },
    ])
    expect((five as Timestamp) - 5).toBeGreaterThanOrEqual((await first) as Timestamp)
    expect(one).toBe((five as Timestamp) + 1)
    expect(two).toBe((one as Timestamp) + 2)
    expect(oracle.last).toBe(two)
  })

  test('does not answer for the leader', async () => {
    const group = await settled(2)
    expect(await group.within(50, group.oracle(1).answer({ count: 1, floor: 0 }))).toBe('not_leader')
  })

  test('refuses an answer that is below what it has seen', async () => {
    let isWrong = false
    const group = await settled(2, {
      forward: (forward) => async (url, ask, signal) => {
        const answer = await forward(url, ask, signal)
        return isWrong && answer !== 'not_leader' ? { ...answer, last: 7 } : answer
      },
    })
    await group.timestamp(group.oracle(1).next())
    isWrong = true
    expect(await group.within(11_000, group.oracle(1).next())).toEqual(storageUnavailable(/handed out before/))
  })

  test('takes over when the leader is gone for two seconds, above the mark', async () => {
    const group = await settled(3)
    const { all } = group.servers
    const before = await group.timestamp(group.oracle(0).next(100_000))
    group.servers.kill(all[0] as (typeof all)[0])
    const { mark } = group.record
    await group.run(1400)
    expect(group.record.epoch).toBe(1)
    const ts = await group.timestamp(group.oracle(1).next(), 1300)
    expect(ts).toBeGreaterThan(mark)
    expect(ts).toBeGreaterThan(before)
    expect(group.record.epoch).toBe(2)
    expect(group.roles.slice(1).sort()).toEqual(['follower', 'leader'])
  })

  test('is told by the leader which was stopped and goes on, and that one asks the next', async () => {
    const group = await settled(2)
    group.servers.all[0]?.run.process.pause(4500)
    await group.run(3000)
    expect(group.oracle(1).role).toMatchObject({ role: 'leader', epoch: 2 })
    const during = await group.timestamp(group.oracle(1).next())
    await group.run(1398)
    const after = await group.timestamp(group.oracle(0).next(), 200)
    expect(after).toBeGreaterThan(during)
    expect(group.roles).toEqual(['follower', 'leader'])
  })

  test('takes over at once when the leader stops cleanly, from where its timestamps end', async () => {
    const group = await settled(2)
    const before = await group.timestamp(group.oracle(0).next())
    const waiting = group.within(0, group.oracle(0).next())
    const closed = group.oracle(0).close()
    expect(await waiting).toEqual(storageUnavailable(/stopping/))
    expect(await group.within(20, closed)).toBeUndefined()
    expect(group.record).toMatchObject({ epoch: 1, url: '', mark: before + 1 })
    expect(await group.within(10, group.oracle(0).answer({ count: 1, floor: 0 }))).toBe('not_leader')
    expect(await group.within(10, group.oracle(0).next())).toEqual(storageUnavailable(/stopping/))
    const ts = await group.timestamp(group.oracle(1).next(), 200)
    expect(ts).toBeGreaterThan(before)
    expect(physicalMs(ts)).toBeLessThanOrEqual(group.nowMs)
    expect(group.oracle(1).role).toMatchObject({ role: 'leader', epoch: 2 })
  })
})

describe('a takeover', () => {
  test('after a restart under the same URL does not wait', async () => {
    const mark = timestampFromMs(START_MS + 2000)
    const group = new Group(1, {}, record({ url: 'http://server-0', mark }))
    expect(await group.timestamp(group.oracle(0).next())).toBeGreaterThan(mark)
    expect(group.record).toMatchObject({ epoch: 5, url: 'http://server-0' })
  })

  test('that lands late counts', async () => {
    const mark = timestampFromMs(START_MS + 2000)
    const group = new Group(
      1,
      {
        row: (row, { world }) => ({
          read: row.read,
          swap: async (expected, next) => {
            if (decodeOracleRecord(next).beat > 1) return row.swap(expected, next)
            world.after(200, () => void row.swap(expected, next))
            return 'unknown'
          },
        }),
      },
      record({ mark }),
    )
    expect(await group.timestamp(group.oracle(0).next(), 3000)).toBeGreaterThan(mark)
    expect(group.record.epoch).toBe(5)
  })

  test('that lands while the server stops leaves the mark alone', async () => {
    const mark = timestampFromMs(START_MS + 2000)
    const group = new Group(
      1,
      {
        row: (row, { world }) => ({
          read: row.read,
          swap: (expected, next) =>
            new Promise((resolve) => world.after(200, () => row.swap(expected, next).then(resolve))),
        }),
      },
      record({ mark, url: '' }),
    )
    await group.run(50)
    expect(await group.within(1000, group.oracle(0).close())).toBeUndefined()
    expect(group.record).toMatchObject({ epoch: 5, url: '', mark })
  })

  test('by a server that is alone and whose clock is behind the mark goes on from there, a little slower', async () => {
    const group = new Group(1, {}, record({ mark: timestampFromMs(START_MS + 3_600_000) }))
    const before = await group.timestamp(group.oracle(0).next(), 3000)
    expect(physicalMs(before)).toBeGreaterThanOrEqual(START_MS + 3_600_000)
    await group.run(60_000)
    const passedMs = physicalMs(await group.timestamp(group.oracle(0).next())) - physicalMs(before)
    expect(passedMs).toBeGreaterThan(60_000 * (7 / 8) - 5000)
    expect(passedMs).toBeLessThan(60_000)
    expect(physicalMs(group.oracle(0).now())).toBeGreaterThan(START_MS + 3_600_000)
    expect(group.servers.warnings).toEqual([expect.stringMatching(/clock of this server is \d+ s behind/)])
    expect(group.oracle(0).state.clockOffsetMs).toBeLessThan(-3_500_000)
  })

  test('is not the end of locks: until a server knows the time of the others, its own is that of the row', async () => {
    const group = await settled(2)
    const server = group.servers.add('http://server-2', 3_600_000)
    await group.run(600)
    const ms = physicalMs(server.run.oracle.now())
    expect(Number.isSafeInteger(ms)).toBe(true)
    expect(ms - group.nowMs).toBeLessThan(1000)
    await group.timestamp(server.run.oracle.next())
    expect(Math.abs(physicalMs(server.run.oracle.now()) - group.nowMs)).toBeLessThan(10)
    expect(server.run.oracle.knowsTime).toBe(true)
    expect(group.servers.warnings).toEqual([expect.stringMatching(/clock of this server is 3600 s ahead/)])
  })

  test('after all were down for long goes on from the clock', async () => {
    const group = new Group(0, {}, record({ mark: timestampFromMs(START_MS - 1e9) }))
    for (let i = 0; i < 3; i++) group.add()
    const ts = await group.timestamp(group.oracle(1).next(), 2500)
    expect(physicalMs(ts)).toBeGreaterThanOrEqual(START_MS)
  })

  test.each([0, START_MS - 1e10, START_MS + 9000])('from a mark at %d ms is none to refuse', async (ms) => {
    const mark = timestampFromMs(ms)
    const group = new Group(1, {}, record({ mark, url: '' }))
    const ts = await group.timestamp(group.oracle(0).next())
    expect(ts).toBeGreaterThan(mark)
    expect(physicalMs(ts)).toBeLessThanOrEqual(Math.max(ms + 100, group.nowMs))
  })
})

describe('a leader that nobody reaches', () => {
  /** @returns the servers of the epochs, and how many of those that can be reached get timestamps in the end. */
  async function ledWhileUnreachable(seed: number, wraps?: Wraps): Promise<{ leaders: string[]; answered: number }> {
    const group = new Group(0, wraps, undefined, seed)
    const { servers } = group
    for (let i = 0; i < 3; i++) group.add()
    const [wrong] = servers.all as [(typeof servers.all)[0]]
    wrong.isUnreachable = true
    const leaders: string[] = []
    const noting = (): void => {
      const { epoch, url } = group.record
      if (url !== '') leaders[epoch] = url
      servers.world.after(50, noting)
    }
    servers.world.after(1000, noting)
    const asking = (): void => {
      for (const oracle of group.oracles) oracle.next().catch(() => {})
      servers.world.after(500, asking)
    }
    asking()
    await group.run(50_000)
    const answers = await group.within(500, Promise.allSettled(group.oracles.map((oracle) => oracle.next())))
    const answered = Array.isArray(answers) ? answers.filter(({ status }) => status === 'fulfilled').length : 0
    return { leaders: Object.values(leaders), answered }
  }

  /** The one that nobody reaches is the fastest. */
  const SLOW_OTHERS: Wraps = {
    isUnproved: true,
    row: (row, { id, world }) => ({
      read: row.read,
      swap: (expected, next) =>
        id === 'run 1'
          ? row.swap(expected, next)
          : new Promise((resolve) => world.after(600, () => row.swap(expected, next).then(resolve))),
    }),
  }

  const leadsOf = (leaders: readonly string[]): number => leaders.filter((url) => url === 'http://server-0').length

  test.each([
    ['any', { isUnproved: true }],
    ['the fastest', SLOW_OTHERS],
  ])('%s: it resigns, is followed by one that is reached, and does not lead again at once', async (_, wraps) => {
    let seen = 0
    for (let seed = 1; seed <= 8; seed++) {
      const { leaders, answered } = await ledWhileUnreachable(seed, wraps)
      expect({ seed, answered, isLong: leaders.length > 3 }).toEqual({ seed, answered: 3, isLong: false })
      expect(leadsOf(leaders)).toBeLessThanOrEqual(1)
      expect(leaders.at(-1)).not.toBe('http://server-0')
      seen += leadsOf(leaders)
    }
    expect(seen).toBeGreaterThan(0)
  })

  test('does not begin to lead while the others are there to tell', async () => {
    for (let seed = 1; seed <= 8; seed++) {
      const { leaders, answered } = await ledWhileUnreachable(seed)
      expect({ seed, leads: leadsOf(leaders), answered }).toEqual({ seed, leads: 0, answered: 3 })
    }
  })

  test('leads where all are unreachable, after ten seconds', async () => {
    const group = await settled(3)
    const { all, warnings } = group.servers
    for (const server of all) server.isUnreachable = true
    group.servers.kill(all[0] as (typeof all)[0])
    await group.run(9000)
    expect(group.roles.slice(1)).toEqual(['candidate', 'candidate'])
    expect(warnings).toContainEqual(expect.stringContaining('they do not reach it at http://server-1'))
    await group.run(3000)
    expect(group.roles.slice(1)).toContain('leader')
  })

  test.each([
    ['2 that hear each other', 2, {}],
    ['3 that hear each other', 3, {}],
    ['2 that hear nothing', 2, { isUnproved: true }],
    ['3 that hear nothing', 3, { isUnproved: true }],
  ])('leads on where all are unreachable, in a group of %s', { tags: ['long'] }, async (_, count, wraps) => {
    const group = new Group(0, wraps)
    for (let i = 0; i < count; i++) group.add()
    for (const server of group.servers.all) server.isUnreachable = true
    let led = 0
    for (let second = 0; second < 300; second++) {
      for (const oracle of group.oracles) oracle.next().catch(() => {})
      await group.run(1000)
      if (group.roles.includes('leader')) led++
    }
    expect(led).toBeGreaterThan(270)
    expect(group.record.epoch).toBeLessThanOrEqual(count + 1)
  })

  test('would lead for ever if it did not listen to the others', async () => {
    const { leaders, answered } = await ledWhileUnreachable(1, { ...SLOW_OTHERS, others: () => () => [] })
    expect({ leaders, answered }).toEqual({ leaders: ['http://server-0'], answered: 0 })
  })

  test('would lead again and again if it did not hold back', async () => {
    const others: Wraps['others'] = (others, oracle) => () => (oracle().role.role === 'leader' ? others() : [])
    const { leaders } = await ledWhileUnreachable(1, { ...SLOW_OTHERS, others })
    expect(leadsOf(leaders)).toBeGreaterThan(2)
  })

  test('leads on where it is alone, and where only a minority cannot reach it', async () => {
    const alone = await settled(1)
    await alone.run(30_000)
    expect(alone.record.epoch).toBe(1)
    const group = await settled(4, {
      forward:
        (forward, { id }) =>
        (url, ask, signal) =>
          id === 'run 2' ? Promise.reject(new Error('no route')) : forward(url, ask, signal),
    })
    for (let i = 0; i < 20; i++) {
      await group.within(1000, Promise.allSettled(group.oracles.map((oracle) => oracle.next())))
      expect(group.record.epoch).toBe(1)
    }
    expect(group.oracles.map(({ unreachedEpoch }) => unreachedEpoch)).toEqual([0, 1, 0, 0])
  })

  test('is not one that says it cannot answer', async () => {
    const group = await settled(2, {
      forward: () => () => Promise.reject(new AskFailed('503', true, undefined)),
    })
    await group.within(11_000, group.oracle(1).next())
    expect(group.oracle(1).unreachedEpoch).toBe(0)
    expect(group.record.epoch).toBe(1)
  })

  test('is not one whose reads of the table take longer than the others wait', async () => {
    let isSlow = false
    const group = await settled(2, {
      row: (row, { id }) => ({
        swap: row.swap,
        read: () => (isSlow && id === 'run 1' ? new Promise(() => {}) : row.read()),
      }),
    })
    isSlow = true
    for (let second = 0; second < 20; second++) {
      group
        .oracle(1)
        .next()
        .catch(() => {})
      await group.run(1000)
      expect([group.oracle(1).unreachedEpoch, group.record.epoch]).toEqual([0, 1])
    }
    isSlow = false
    await group.timestamp(group.oracle(1).next(), 4000)
  })
})

describe('the table', () => {
  test('is away: requests fail within ten seconds, hand out nothing, and go on afterwards', async () => {
    const group = await settled(2)
    const before = await group.timestamp(group.oracle(0).next())
    group.servers.table.faults.isTableAway = true
    const calls = [group.oracle(0).next(), group.oracle(1).next(), group.oracle(0).observe(before + 1e9)]
    const outcomes = await group.within(10_001, Promise.allSettled(calls))
    const failure = { status: 'rejected', reason: storageUnavailable(/the table is away/) }
    expect(outcomes).toEqual([failure, expect.objectContaining({ status: 'rejected' }), failure])
    expect(group.oracle(0).last).toBe(before)
    group.servers.table.faults.isTableAway = false
    for (const oracle of group.oracles) expect(await group.timestamp(oracle.next(), 1000)).toBeGreaterThan(before)
  })

  test('does not answer: requests fail within ten seconds', async () => {
    const group = new Group(1, { row: () => ({ read: () => new Promise(() => {}), swap: async () => 'unknown' }) })
    expect(await group.within(10_001, group.oracle(0).next())).toEqual(storageUnavailable(/does not answer/))
  })

  test.each([
    ['gone', undefined],
    ['damaged', new Uint8Array([1, 2, 3])],
  ])('whose row is %s hands out nothing', async (what, bytes) => {
    const group = await settled(2)
    group.servers.table.bytes = bytes
    const calls = Promise.allSettled(group.oracles.map((oracle) => oracle.next()))
    const failure = { status: 'rejected', reason: storageUnavailable(new RegExp(what)) }
    expect(await group.within(10_001, calls)).toEqual([failure, expect.objectContaining({ status: 'rejected' })])
    expect(group.servers.table.bytes).toBe(bytes)
  })
})

describe('observe', () => {
  test('of an old timestamp asks nobody', async () => {
    const group = await settled(2)
    for (const oracle of group.oracles) {
      const ts = await group.timestamp(oracle.next())
      expect(oracle.observe(ts)).toBeUndefined()
    }
  })

  test('on any server raises what is handed out next on all, where timestamps run ahead of the clock too', async () => {
    const group = await settled(3)
    await group.timestamp(group.oracle(0).next(ASK_COUNT_MAX))
    const last = await group.timestamp(group.oracle(2).next(), 20)
    expect(await group.within(20, group.oracle(1).observe(last + 1))).toBeUndefined()
    expect(group.oracle(1).last).toBe(last + 1)
    expect(await group.timestamp(group.oracle(2).next(), 20)).toBe(last + 2)
  })

  test('raises it within the millisecond of the clock', async () => {
    const group = await settled(1)
    const { world } = group.servers
    const late = timestampFromMs(group.nowMs) + LOGICAL_PER_MS - 1
    // A read that takes no time, so that the clock shows the same millisecond.
    const oracle = leaderOracleWithInstantRow(group)
    await world.runUntil(world.nowMs)
    await oracle.next()
    await oracle.observe(late)
    expect(await oracle.next()).toBe(late + 1)
  })

  test('of the future goes up to the clock and no further', async () => {
    const group = await settled(2)
    for (const oracle of [group.oracle(1), group.oracle(0)]) {
      for (const ts of [timestampFromMs(group.nowMs + 3_600_000), Number.MAX_SAFE_INTEGER])
        expect(await group.within(50, oracle.observe(ts))).toBeUndefined()
      expect(physicalMs(oracle.last)).toBeLessThanOrEqual(group.nowMs)
      expect(physicalMs(await group.timestamp(oracle.next()))).toBeLessThanOrEqual(group.nowMs + 1)
    }
  })
})

function leaderOracleWithInstantRow(group: Group): LeaderOracle {
  let bytes: Uint8Array | undefined
  const { world, all } = group.servers
  const { process, clock } = (all[0] as (typeof all)[0]).run
  const row: OracleRow = {
    read: async () => bytes,
    swap: async (_, next) => {
      bytes = next
      return 'done'
    },
  }
  return leaderOracle({
    world,
    process,
    row,
    forward: async () => 'not_leader',
    url: 'x',
    id: 'x',
    clock,
    others: () => [],
    isReached: async () => undefined,
    onWarning() {},
  })
}

describe('nextForClient', () => {
  test.each([0, 1])('keeps what server %d hands out to clients near the clock', async (i) => {
    const group = await settled(2)
    const oracle = group.oracle(i)
    await group.timestamp(oracle.next())
    const calls = Array.from({ length: 30 }, () => oracle.nextForClient(ASK_COUNT_MAX))
    const results = (await group.within(13_000, Promise.allSettled(calls))) as PromiseSettledResult<Timestamp>[]
    const refused = results.filter(({ status }) => status === 'rejected')
    expect(refused.length).toBeGreaterThan(10)
    for (const result of refused)
      expect((result as PromiseRejectedResult).reason).toEqual(expect.objectContaining({ code: 'overloaded' }))
    expect(results.length - refused.length).toBeGreaterThan(8)
    expect(physicalMs(group.oracle(0).last) - START_MS - 700).toBeLessThan(4000 + 3100)
    expect(await group.timestamp(oracle.nextForClient(1))).toBeGreaterThan(0)
  })

  test('of many servers together is bounded by the leader', async () => {
    const group = await settled(6)
    const calls = group.oracles.flatMap((oracle) =>
      Array.from({ length: 9 }, () => oracle.nextForClient(ASK_COUNT_MAX)),
    )
    let aheadMs = 0
    const done = Promise.allSettled(calls)
    for (let i = 0; i < 160; i++) {
      await group.run(100)
      aheadMs = Math.max(aheadMs, group.oracle(0).state.aheadMs)
    }
    for (const result of await done) if (result.status === 'rejected') expect(result.reason).toBeInstanceOf(KvError)
    expect(aheadMs).toBeGreaterThan(3000)
    expect(aheadMs).toBeLessThanOrEqual(5000)
  })
})

for (const callMs of [300, 1000, 1800, 2500])
  test(`a table whose calls take ${callMs} ms gives everybody timestamps, and one leader`, async () => {
    const { servers } = new Group(3)
    servers.table.delayMs = () => callMs / 2
    for (let asks = 1; asks <= 10; asks++) {
      for (const server of servers.all) servers.next(server, 1)
      await servers.world.runUntil(servers.world.nowMs + 11_000)
      expect(servers.history).toHaveLength(3 * asks)
    }
    expect(servers.all.map(({ run }) => run.oracle.role.epoch)).toEqual([1, 1, 1])
  })

describe('timestamps are late', () => {
  test('once none was had for ten seconds, whoever asks and however often, until one is had', async () => {
    const group = await settled(2)
    const { table, warnings } = group.servers
    for (const oracle of group.oracles) await group.timestamp(oracle.next())
    const asked = group.oracles.map((oracle) => group.within(10_001, oracle.next()))
    const lates = (): (string | undefined)[] => group.oracles.map(({ state }) => state.late)
    table.faults.isTableAway = true
    await group.run(9900)
    expect(lates()).toEqual([undefined, undefined])
    await Promise.all(asked)
    await group.run(30_000) // Nobody asks.
    expect(lates()).toEqual([expect.stringMatching(/^no timestamps: /), expect.stringMatching(/^no timestamps: /)])
    expect(lates()[0]).toContain('the table is away')
    expect(warnings).toHaveLength(2)
    await group.within(11_000, Promise.allSettled(group.oracles.map((oracle) => oracle.next())))
    expect(group.oracles.map(({ state }) => state.meters.failures)).toEqual([2, 2])
    expect(warnings).toHaveLength(2)
    table.faults.isTableAway = false
    for (const oracle of group.oracles) await group.timestamp(oracle.next(), 5000)
    expect(lates()).toEqual([undefined, undefined])
    expect(warnings.slice(2)).toEqual([
      expect.stringMatching(/^timestamps are had again, after \d+ s$/),
      expect.stringMatching(/^timestamps are had again, after \d+ s$/),
    ])
  })

  test('not while others take over, and not where nobody wants any', async () => {
    const group = await settled(3)
    const { all } = group.servers
    group.servers.kill(all[0] as (typeof all)[0])
    const asked = [1, 2].map((i) => group.oracle(i).next())
    await group.run(2500)
    await Promise.all(asked)
    expect(group.oracles.map(({ state }) => state.late)).toEqual([undefined, undefined, undefined])
    group.servers.table.faults.isTableAway = true
    await group.run(60_000)
    expect(group.oracles.slice(1).map(({ state }) => state.late)).toEqual([undefined, undefined])
  })

  test('of a server that stops, no request counts as a failure', async () => {
    const group = await settled(1)
    const waiting = group.within(0, group.oracle(0).next())
    await group.within(50, group.oracle(0).close())
    expect(await waiting).toEqual(storageUnavailable(/stopping/))
    expect(group.oracle(0).state.meters.failures).toBe(0)
  })
})
