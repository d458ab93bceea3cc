import { expect, test } from 'vitest'
import { SHARED_WAITS_MAX } from '../../../../src/limits.js'
import { WAIT_LIFE_MS, WaitGraph } from '../../../../src/store/table/waits/wait-graph.js'
import { CIRCLE_BYTES_MAX, costOf, type NumberedWait } from '../../../../src/store/table/waits/wait-report.js'
import { utf8 } from '../../support.js'

const waitOf = (txn: number, waitForTxn: number, key: string | Uint8Array = `k${waitForTxn}`) => ({
  txn,
  waitForTxn,
  key: typeof key === 'string' ? utf8(key) : key,
})

/** A graph, and a clock that the test moves. */
class Told {
  nowMs = 0
  readonly graph = new WaitGraph(() => this.nowMs)

  /** `id: [txn, waitForTxn]`. @returns the chains that are found, as `txn>txn>txn` from the holder. */
  tell(server: string, waits: Readonly<Record<number, readonly [number, number]>>, ended: readonly number[] = []) {
    const numbered: NumberedWait[] = Object.entries(waits).map(([id, [txn, waitForTxn]]) => ({
      id: Number(id),
      wait: waitOf(txn, waitForTxn),
    }))
    return this.graph
      .report(server, { waits: numbered, ended })
      .map(({ id, circle }) => `${id}: ${circle.map(({ txn }) => txn).join('>')}`)
  }
}

test('the wait that closes a circle is answered with it, from its holder on, and left out', () => {
  const told = new Told()
  expect(told.tell('a', { 1: [10, 20] })).toEqual([])
  expect(told.tell('b', { 1: [20, 30] })).toEqual([])
  expect(told.graph.report('c', { waits: [{ id: 7, wait: waitOf(30, 10) }], ended: [] })).toEqual([
    { id: 7, circle: [waitOf(10, 20), waitOf(20, 30), waitOf(30, 10)] },
  ])
  expect(told.graph.size).toBe(2)
  // Nobody else becomes a victim of the same circle.
  expect(told.tell('a', { 1: [10, 20] })).toEqual([])
  expect(told.tell('b', { 1: [20, 30] })).toEqual([])
  expect(told.tell('c', { 7: [30, 10] })).toEqual(['7: 10>20>30'])
})

test('waits of one report are taken in their order, after those that end', () => {
  const told = new Told()
  expect(told.tell('a', { 1: [10, 20], 2: [20, 10] })).toEqual(['2: 10>20'])
  expect(told.tell('a', { 2: [20, 10] }, [1])).toEqual([])
  expect(told.graph.size).toBe(1)
})

test('servers number their waits for themselves; what ends is that of the server that says so', () => {
  const told = new Told()
  told.tell('a', { 1: [10, 20] })
  told.tell('b', {}, [1])
  expect(told.tell('b', { 1: [20, 10] })).toEqual(['1: 10>20'])
})

test('telling a wait again changes nothing; a transaction may be in several', () => {
  const told = new Told()
  for (let i = 0; i < 5; i++) told.tell('a', { 1: [10, 20], 2: [10, 30] })
  expect(told.graph.size).toBe(2)
  expect(told.tell('b', { 1: [30, 10] })).toEqual(['1: 10>30'])
  told.tell('a', {}, [2])
  expect(told.tell('b', { 1: [30, 10] })).toEqual([])
})

test('a wait that nobody renews is over, and is a new one if it comes back', () => {
  const told = new Told()
  told.tell('a', { 1: [10, 20] })
  told.nowMs += WAIT_LIFE_MS - 1
  told.tell('a', { 1: [10, 20] })
  told.nowMs += WAIT_LIFE_MS - 1
  expect(told.tell('b', { 1: [20, 10] })).toEqual(['1: 10>20'])
  told.nowMs += 1
  expect(told.tell('b', { 1: [20, 10] })).toEqual([])
  // The circle is there all the same, now that the server is heard of again.
  expect(told.tell('a', { 1: [10, 20] })).toEqual(['1: 20>10'])
  told.nowMs += 2 * WAIT_LIFE_MS
  told.tell('a', {})
  expect(told.graph.size).toBe(0)
})

test('two transactions on the same holder, and a transaction on its own lock, are no circle', () => {
  const told = new Told()
  expect(told.tell('a', { 1: [10, 30], 2: [20, 30], 3: [30, 30] })).toEqual([])
})

test('ten thousand who wait for one another in a row, and the circle that is too long to be looked for', {
  tags: ['long'],
}, () => {
  const told = new Told()
  const row = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [i, [i + 2, i + 1] as const]))
  expect(told.tell('a', row)).toEqual([])
  expect(told.tell('b', { 1: [1, 150] })[0]).toMatch(/^1: 150>149>.*>2>1$/)
  expect(told.tell('b', { 1: [1, 10_000] })).toEqual([])
})

test('more waits than are remembered are left out, and there is room again when some end', { tags: ['long'] }, () => {
  const told = new Told()
  const many = Array.from({ length: SHARED_WAITS_MAX + 10 }, (_, i) => ({ id: i, wait: waitOf(i + 2, 1, '') }))
  told.graph.report('a', { waits: many, ended: [] })
  expect(told.graph.size).toBe(SHARED_WAITS_MAX)
  told.tell('b', { 1: [1, SHARED_WAITS_MAX + 5] })
  expect(told.tell('c', {}, [])).toEqual([])
  expect(told.graph.size).toBe(SHARED_WAITS_MAX)
  told.tell('a', {}, [0, 1, 2])
  told.tell('b', { 1: [1, 5] })
  expect(told.graph.size).toBe(SHARED_WAITS_MAX - 3) // A circle: it is told, and left out.
  told.tell('b', { 2: [9, 8] })
  expect(told.graph.size).toBe(SHARED_WAITS_MAX - 2)
  // Long keys find the bound on bytes first.
  const long = new Told()
  const key = new Uint8Array(4095)
  long.graph.report('a', { waits: many.map(({ id }) => ({ id, wait: waitOf(id + 2, 1, key) })), ended: [] })
  expect(long.graph.size).toBeLessThan(SHARED_WAITS_MAX / 5)
})

test('circles that are too long for one answer wait for the next', () => {
  const told = new Told()
  const key = new Uint8Array(4095)
  const cost = 2 * costOf(waitOf(1, 2, key))
  const count = Math.ceil(CIRCLE_BYTES_MAX / cost) + 1
  const pairs = Array.from({ length: count }, (_, i) => [2 * i + 1, 2 * i + 2] as const)
  told.graph.report('a', { waits: pairs.map(([txn, other], id) => ({ id, wait: waitOf(txn, other, key) })), ended: [] })
  const back = pairs.map(([txn, other], id) => ({ id, wait: waitOf(other, txn, key) }))
  const first = told.graph.report('b', { waits: back, ended: [] })
  expect(first.length).toBeLessThan(count)
  const rest = back.filter(({ id }) => !first.some((found) => found.id === id))
  expect(told.graph.report('b', { waits: rest, ended: [] })).toHaveLength(rest.length)
})
