import { expect, test } from 'vitest'
import { cluster } from '../../bench/scale-out/cluster.mjs'
import { divided } from '../../bench/scale-out/divided.mjs'
import { Events } from '../../bench/scale-out/events.mjs'
import { hotRow } from '../../bench/scale-out/hot-row.mjs'
import { demandOf } from '../../bench/scale-out/transactions.mjs'

/** Every call takes 6 ms, and a node's work next to nothing. */
const COSTS = {
  latency: { medianMs: 6, p99Ms: 6 },
  ...{ readMs: 1e-9, writeMs: 1e-9, hopMs: 0.5, askMs: 0.25, batchMs: 0.75 },
  cpuMs: { get: 0, put: 0.6, transfer: 0.7 },
}

const TAILED = { ...COSTS, latency: { medianMs: 6, p99Ms: 25 }, readMs: 1 / 17, writeMs: 1 / 14 }

test('events happen in the order of time, and of one moment in the order in which they were planned', () => {
  const events = new Events()
  const seen: string[] = []
  for (const [time, name] of [
    [5, 'c'],
    [1, 'a'],
    [5, 'd'],
    [3, 'b'],
    [9, 'later'],
  ] as const)
    events.at(time, () => seen.push(`${name}${events.now}`))
  events.at(3, () => events.after(1, () => seen.push(`new${events.now}`)))
  events.run(8)
  expect(seen).toEqual(['a1', 'b3', 'new4', 'c5', 'd5'])
  expect(events.now).toBe(8)
})

test('one client meets the latencies that are added up by hand', () => {
  // To the leader and back, half of its work for the ask before the batch and half after, the batch, and the read that proves it.
  const timestamp = 2 * 0.5 + 0.25 + 0.75 + 6
  const plan = { nodes: 1, servers: 1, isLeaderFree: true, clients: 1, ms: 1000 }
  // A PUT is five steps with 0.1 ms of the server before, between and after them.
  expect(cluster(COSTS, { ...plan, kind: 'put' }).p99).toBeCloseTo(2 * timestamp + 3 * 6 + 6 * 0.1, 4)
  // A transfer answers before its last row is changed.
  expect(cluster(COSTS, { ...plan, kind: 'transfer' }).p99).toBeCloseTo(2 * timestamp + 3 * 6 + 6 * 0.1, 4)
  expect(cluster(COSTS, { ...plan, kind: 'get' }).p99).toBeCloseTo(6, 4)
  // The leader itself asks nobody.
  const own = cluster(COSTS, { ...plan, isLeaderFree: false, kind: 'put' })
  expect(own.p99).toBeCloseTo(2 * (0.75 + 6) + 3 * 6 + 6 * 0.1, 4)
})

test('where changes are read, a commit waits for one call more, which others share', () => {
  const plan = { nodes: 1, servers: 1, isLeaderFree: true, kind: 'put', ms: 1000 } as const
  const alone = { ...plan, clients: 1 }
  expect(cluster(COSTS, { ...alone, isRead: true }).p50).toBeCloseTo((cluster(COSTS, alone).p50 ?? 0) + 6, 4)
  const { logChanges, rate } = cluster(COSTS, { ...plan, clients: 100, isRead: true })
  // 50 appends, and a further change for each 256 of them.
  expect(logChanges).toBeGreaterThan(45)
  expect(logChanges).toBeLessThanOrEqual(51)
  expect(rate).toBeGreaterThan(10 * logChanges)
})

test('a row is committed once per lock, timestamp and unlock', () => {
  // One writer, which leads: two timestamps and two changes.
  expect(hotRow(COSTS, { writers: 1, ms: 10_000 }).commits).toBeCloseTo(1000 / (2 * (0.75 + 6) + 2 * 6), 0)
  const { commits, failures } = hotRow(TAILED, { writers: 8, ms: 5000 })
  expect(commits).toBeLessThan(1000 / 20)
  expect(failures).toBeGreaterThan(commits)
})

test('ascending keys get what one node does, however many there are', () => {
  const { readMs, writeMs } = TAILED
  const { rowReads, rowWrites } = demandOf('put')
  const most = 1000 / (rowReads * readMs + rowWrites * writeMs)
  const rates = [2, 20].map(
    (nodes) =>
      cluster(TAILED, { nodes, kind: 'put', isAscending: true, clients: 500, servers: 20, warmUpMs: 400, ms: 600 })
        .rate,
  )
  for (const rate of rates) expect(rate / most).toBeGreaterThan(0.85)
  for (const rate of rates) expect(rate / most).toBeLessThan(1.15)
})

test('a seed gives the same figures again, and another seed others', () => {
  const of = (seed: number) => cluster(TAILED, { nodes: 12, kind: 'transfer', load: 0.3, seed, warmUpMs: 100, ms: 200 })
  expect(of(1)).toEqual(of(1))
  expect(of(2)).not.toEqual(of(1))
})

test('a slice with a crowd looks as the whole does', () => {
  // Ten nodes are whole, eleven are not: the last servers only ask.
  const plan = { kind: 'put', isLeaderFree: true, load: 0.15, warmUpMs: 200, ms: 1500 } as const
  const whole = cluster(TAILED, { ...plan, nodes: 10 })
  const slice = cluster(TAILED, { ...plan, nodes: 11 })
  const ratioOf = (value: (result: ReturnType<typeof cluster>) => number) => value(slice) / value(whole)
  const ratios = [
    ratioOf(({ rate, nodes }) => rate / nodes),
    ratioOf(({ timestamps, nodes }) => timestamps / nodes),
    ratioOf(({ asks, servers }) => asks / servers),
    ratioOf(({ p50 }) => p50 ?? Number.NaN),
  ]
  expect(ratios.filter((ratio) => !(Math.abs(ratio - 1) < 0.1))).toEqual([])
})

test("the leader's time is divided between asks and batches", () => {
  const runs = [
    { asks: 100, batches: 100, micros: 100 * 40 + 100 * 500 },
    { asks: 5000, batches: 120, micros: 5000 * 40 + 120 * 500 },
  ]
  expect(divided(runs).askMicros).toBeCloseTo(40, 6)
  expect(divided(runs).batchMicros).toBeCloseTo(500, 6)
})
