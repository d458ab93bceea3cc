import { describe, expect, test } from 'vitest'
import type { WaitForEntry } from '../../../../src/errors/registry.js'
import { LeadingGraph } from '../../../../src/store/table/waits/leading-graph.js'
import type { FoundCircle, WaitReport } from '../../../../src/store/table/waits/wait-report.js'
import { ENDED_MAX } from '../../../../src/store/table/waits/wait-report.js'
import { WaitReports } from '../../../../src/store/table/waits/wait-reports.js'
import { World } from '../../../oracle/simulated-servers.js'
import { utf8 } from '../../support.js'
import { SimulatedWaits } from './simulated-waits.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? (process.env['CI'] ? 30 : 20))

const waitOf = (txn: number, waitForTxn: number): WaitForEntry => ({ txn, waitForTxn, key: utf8(`k${waitForTxn}`) })

describe('what one server tells', () => {
  /** Answers at once, unless the test says otherwise. */
  class Listener {
    readonly world = new World(1)
    readonly heard: { readonly atMs: number; readonly report: WaitReport }[] = []
    answer: () => Promise<readonly FoundCircle[] | undefined> = async () => []
    readonly reports = new WaitReports({
      send: async (report) => {
        this.heard.push({ atMs: this.world.nowMs, report })
        return this.answer()
      },
      timer: (ms, call) => {
        let isWanted = true
        this.world.after(ms, () => isWanted && call())
        return () => {
          isWanted = false
        }
      },
      nowMs: () => this.world.nowMs,
    })
    begin(txn: number, onCircle: (circle: readonly WaitForEntry[]) => void = () => {}) {
      return this.reports.begin(waitOf(txn, 1), onCircle)
    }
    /** `+txn` of those that are told, `-number` of those that have ended, since the last look. */
    get news(): string[] {
      return this.heard
        .splice(0)
        .map(({ atMs, report }) =>
          [`${atMs}:`, ...report.waits.map(({ wait }) => `+${wait.txn}`), ...report.ended.map((id) => `-${id}`)].join(
            ' ',
          ),
        )
    }
  }

  test('a wait at once, again every second, and its end; then nothing', async () => {
    const listener = new Listener()
    const { world } = listener
    const end = listener.begin(10)
    await world.runUntil(2500)
    expect(listener.heard.map(({ atMs }) => atMs)).toEqual([0, 1000, 2000])
    end()
    end()
    await world.runUntil(9000)
    expect(listener.heard.slice(3)).toEqual([{ atMs: 2500, report: { waits: [], ended: [1] } }])
  })

  test('waits that begin together share a report; those that come while one is under way make the next', async () => {
    const listener = new Listener()
    listener.begin(10)
    listener.begin(20)
    await listener.world.runUntil(1)
    const end = listener.begin(30)
    listener.begin(40)
    end() // Nobody has heard of it.
    await listener.world.runUntil(500)
    expect(listener.news).toEqual(['0: +10 +20', '20: +40'])
    expect(listener.reports.waits(2)).toEqual([waitOf(10, 1), waitOf(20, 1)])
    expect(listener.reports.waits(9)).toHaveLength(3)
  })

  test('a circle goes to its wait, unless that is over', async () => {
    const listener = new Listener()
    const circle = [waitOf(1, 10), waitOf(10, 1)]
    listener.answer = async () => {
      listener.answer = async () => []
      return [1, 2, 99].map((id) => ({ id, circle }))
    }
    const got: unknown[] = []
    listener.begin(10, (each) => got.push(each))
    const end = listener.begin(20, () => got.push('over'))
    void Promise.resolve().then(end)
    await listener.world.runUntil(1)
    expect(got).toEqual([circle])
  })

  test('after a report that nobody answers, and with a graph that knows nothing, all is told again', async () => {
    const listener = new Listener()
    const ends = [listener.begin(10), listener.begin(20)]
    await listener.world.runUntil(50)
    listener.answer = async () => {
      throw new Error('no server leads')
    }
    listener.begin(30)
    ends[0]?.()
    await listener.world.runUntil(120)
    listener.answer = async () => {
      listener.answer = async () => []
      return undefined
    }
    await listener.world.runUntil(900)
    expect(listener.news).toEqual(['0: +10 +20', '50: +30 -1', '150: +20 +30', '150: +20 +30'])
  })

  test('ten thousand waits go in many small reports, each again within a second or so, and all ends are told', async () => {
    const listener = new Listener()
    const ends = Array.from({ length: 10_000 }, (_, i) => listener.begin(i + 2))
    await listener.world.runUntil(10)
    const told = listener.heard.splice(0).flatMap(({ report }) => report.waits)
    expect(new Set(told.map(({ id }) => id)).size).toBe(10_000)
    await listener.world.runUntil(1100)
    const again = listener.heard.splice(0).flatMap(({ report }) => report.waits)
    expect(again.map(({ id }) => id)).toEqual(told.map(({ id }) => id))
    for (const end of ends) end()
    await listener.world.runUntil(1200)
    const reports = listener.heard.splice(0)
    expect(reports.flatMap(({ report }) => report.ended)).toHaveLength(10_000)
    expect(Math.max(...reports.map(({ report }) => report.ended.length))).toBe(ENDED_MAX)
    await listener.world.runUntil(9000)
    expect(listener.heard).toEqual([])
  })

  test('nothing once it is closed', async () => {
    const listener = new Listener()
    listener.begin(10)
    await listener.world.runUntil(50)
    listener.reports.close()
    listener.begin(20)()
    await listener.world.runUntil(5000)
    expect(listener.news).toEqual(['0: +10'])
  })
})

describe('the leader', () => {
  const ask = (graph: string, sequence: number, server = 'a') => ({
    ...{ server, graph, sequence, ended: [] },
    waits: [{ id: 1, wait: waitOf(sequence, 1) }],
  })
  const nameOf = (leading: LeadingGraph): string => {
    const answer = leading.answer(ask('', 0))
    if (answer === undefined || answer === 'not_leader') throw new Error('it does not lead')
    return answer.graph
  }

  test('takes reports for its own graph alone, each once', () => {
    const leading = new LeadingGraph(() => 1)
    const graph = nameOf(leading)
    expect(leading.size).toBe(0)
    expect(leading.answer(ask('of another time', 1))).toEqual({ graph, circles: [] })
    expect(leading.size).toBe(0)
    expect(leading.answer(ask(graph, 2))).toEqual({ graph, circles: [] })
    expect(leading.size).toBe(1)
    for (const sequence of [0, 1, 2]) expect(leading.answer(ask(graph, sequence))).toBeUndefined()
    expect(leading.size).toBe(1)
    expect(leading.answer(ask(graph, 2, 'b'))).toEqual({ graph, circles: [] })
  })

  test('forgets all when it does not lead, and begins anew with each epoch', () => {
    let epoch: number | undefined = 1
    const leading = new LeadingGraph(() => epoch)
    const graph = nameOf(leading)
    leading.answer(ask(graph, 1))
    epoch = undefined
    expect(leading.answer(ask(graph, 2))).toBe('not_leader')
    expect(leading.size).toBe(0)
    epoch = 1
    expect(nameOf(leading)).not.toBe(graph)
    const second = nameOf(leading)
    epoch = 2
    expect(leading.answer(ask(second, 3))).not.toMatchObject({ graph: second })
    expect(leading.size).toBe(0)
  })

  test('begins anew when more processes have asked than it remembers', () => {
    const leading = new LeadingGraph(() => 1)
    const graph = nameOf(leading)
    for (let i = 0; i < 10_000; i++) leading.answer(ask(graph, 1, `server ${i}`))
    const answer = leading.answer(ask(graph, 1, 'one more'))
    expect(answer).not.toMatchObject({ graph })
    expect(leading.size).toBe(0)
  })
})

describe('transactions of three servers that lock the same keys, in simulated time', () => {
  const seeds = Array.from({ length: RUNS }, (_, i) => i + 1)

  test('every circle is found soon, no wait outside a circle is refused, and all commit', {
    tags: ['long'],
  }, async () => {
    let refused = 0
    for (const seed of seeds) {
      const simulated = new SimulatedWaits(seed, 3)
      for (const server of simulated.servers) for (let i = 0; i < 3; i++) simulated.client(server, 5)
      await simulated.world.runUntil(60_000)
      const { running, committed, wrong, oldestCircleMs } = simulated
      expect({ seed, running, committed, wrong }).toEqual({ seed, running: 0, committed: 45, wrong: [] })
      expect(oldestCircleMs).toBeLessThan(100)
      refused += simulated.refused
    }
    expect(refused).toBeGreaterThan(5 * RUNS)
  })

  test('they end as well while leaders change, servers die and stand still, and reports get lost and come twice', {
    tags: ['long'],
  }, async () => {
    let refused = 0
    for (const seed of seeds) {
      const simulated = new SimulatedWaits(seed, 3)
      const { world, servers } = simulated
      simulated.faults = { loses: 0.1, repeats: 0.1 }
      for (const server of servers) for (let i = 0; i < 3; i++) simulated.client(server, 10)
      for (let i = 0; i < 6; i++) {
        await world.runUntil(world.nowMs + world.between(100, 1500))
        const server = world.oneOf(servers)
        const accident = world.oneOf(['kill', 'pause', 'lead', 'lead'])
        if (accident === 'kill') simulated.kill(server)
        else if (accident === 'pause') server.process.pause(world.between(50, 5000))
        else simulated.lead(server)
      }
      simulated.faults = { loses: 0, repeats: 0 }
      await world.runUntil(world.nowMs + 60_000)
      expect({ seed, running: simulated.running }).toEqual({ seed, running: 0 })
      // A pause of the leader, its silence, and the next report.
      expect(simulated.oldestCircleMs).toBeLessThan(12_000)
      refused += simulated.refused
    }
    expect(refused).toBeGreaterThan(5 * RUNS)
  })
})
