import { describe, expect, test } from 'vitest'
import { decodeOracleRecord, encodeOracleRecord, type OracleRow } from '../../src/oracle/oracle-row.js'
import { type Timestamp, timestampFromMs } from '../../src/timestamp.js'
import {
  leaderOracle,
  type OracleParts,
  runSchedule,
  runWrongClock,
  Servers,
  type SimulatedOracle,
} from './simulated-servers.js'
import { unsteadiness, violations } from './timestamp-history.js'

const SEEDS = 100

/** What the checker finds in the first schedule in which it finds anything. */
async function firstViolations(make: (parts: OracleParts) => SimulatedOracle): Promise<string[]> {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const servers = new Servers(seed, make)
    await runSchedule(servers, 6000)
    const found = violations(servers.history)
    if (found.length > 0) return found
  }
  return []
}

/** Shows a leader what it wrote itself, without asking the table, until a change is refused. */
function trusting(row: OracleRow): OracleRow {
  let own: Uint8Array | undefined
  return {
    read: async () => own ?? row.read(),
    swap: async (expected, next) => {
      const outcome = await row.swap(expected, next)
      own = outcome === 'done' ? next : undefined
      return outcome
    },
  }
}

/** Shows the clock in place of the mark. */
function forgettingTheMark(row: OracleRow, now: () => number): OracleRow {
  const written = new WeakMap<Uint8Array, Uint8Array>()
  return {
    read: async () => {
      const bytes = await row.read()
      if (bytes === undefined) return undefined
      const record = decodeOracleRecord(bytes)
      const shown = encodeOracleRecord({ ...record, mark: Math.min(record.mark, timestampFromMs(now())) })
      written.set(shown, bytes)
      return shown
    },
    swap: (expected, next) => row.swap(expected && (written.get(expected) ?? expected), next),
  }
}

/** A range of each server's own, under one mark. */
function rangeOracle({ row, clock }: OracleParts): SimulatedOracle {
  let last: Timestamp = 0
  let mark: Timestamp = 0
  const next = async (count = 1): Promise<Timestamp> => {
    while (last + count >= mark) {
      const bytes = await row.read()
      const from = Math.max(bytes === undefined ? 0 : decodeOracleRecord(bytes).mark, timestampFromMs(clock.now()))
      const record = { epoch: 1, url: '', id: '', mark: from + 100_000, beat: 0 }
      if ((await row.swap(bytes, encodeOracleRecord(record))) !== 'done') continue
      last = from
      mark = record.mark
    }
    last += count
    return last
  }
  return {
    next,
    observe: () => undefined,
    now: () => timestampFromMs(clock.now()),
    get last() {
      return last
    },
    answer: async () => 'not_leader',
    close: async () => {},
    unreachedEpoch: 0,
    knowsTime: false,
    role: { role: 'candidate', leader: undefined, epoch: 1 },
  }
}

describe('the checker catches', () => {
  test('a leader that trusts its memory and does not read the row', async () => {
    const found = await firstViolations((parts) => leaderOracle({ ...parts, row: trusting(parts.row) }))
    expect(found).toContainEqual(expect.stringContaining('after'))
  })

  test('servers that hand out ranges of their own', async () => {
    const found = await firstViolations(rangeOracle)
    expect(found).toContainEqual(expect.stringContaining('after'))
    expect(found).not.toContainEqual(expect.stringContaining('twice'))
  })

  test('a takeover that goes on from the clock', async () => {
    const found = await firstViolations((parts) =>
      leaderOracle({ ...parts, row: forgettingTheMark(parts.row, () => parts.clock.now()) }),
    )
    expect(found).toContainEqual(expect.stringContaining('after'))
  })

  test('and nothing where the oracle is right', async () => {
    expect(violations([{ server: 'a', began: 1, ended: 2, count: 2, last: 7 }])).toEqual([])
    const overlapping = [
      { server: 'a', began: 1, ended: 4, count: 2, last: 9 },
      { server: 'b', began: 2, ended: 3, count: 2, last: 7 },
    ]
    expect(violations(overlapping)).toEqual([])
    expect(violations(overlapping.map((answer) => ({ ...answer, last: 8 })))).toHaveLength(1)
  })
})

describe('a clock that is wrong by an hour makes locks older where', () => {
  async function fastMs(make: (parts: OracleParts) => SimulatedOracle, offsetMs = 3_600_000): Promise<number> {
    let longest = 0
    for (let seed = 1; seed <= 12; seed++) {
      const servers = new Servers(seed, make)
      await runWrongClock(servers, offsetMs, 60_000)
      longest = Math.max(longest, unsteadiness(servers.times).fastMs)
    }
    return longest
  }

  test('a takeover goes on from the clock of the new leader', async () => {
    const byOwnClock = (parts: OracleParts) =>
      leaderOracle({
        ...parts,
        forward: async (...ask) => {
          const answer = await parts.forward(...ask)
          return answer === 'not_leader' ? answer : { ...answer, nowMs: parts.clock.now() }
        },
      })
    expect(await fastMs(byOwnClock)).toBeGreaterThan(3_000_000)
  })

  test('a server that has just started takes no notice of the others', async () => {
    expect(await fastMs((parts) => leaderOracle({ ...parts, others: () => [] }))).toBeGreaterThan(3_000_000)
  })

  test('and not where the oracle is right', async () => {
    expect(await fastMs(leaderOracle)).toBeLessThan(5000)
  })
})
