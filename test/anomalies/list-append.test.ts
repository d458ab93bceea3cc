import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { startServer, type TestServer } from '../http/support.js'
import { forbiddenAnomalies } from './forbidden-anomalies.js'
import { ISOLATIONS, MODES } from './http-transaction.js'
import { type AnomalyType, checkListAppend, type ListOp, type ListTransaction } from './list-append.js'
import { ListAppendWorkload } from './list-append-workload.js'
import { report, settings } from './settings.js'

// ---- The checker itself

/** `x+1` appends, `x[1 2]` reads, `x[]` reads an empty list. */
function ops(text: string): ListOp[] {
  return text.split(', ').map((part) => {
    const [, key = '', value = '', list = ''] = /^(\w)(?:\+(\d+)|\[([\d ]*)\])$/.exec(part) ?? []
    if (value !== '') return { type: 'append', key, value: Number(value) }
    return { type: 'read', key, values: list === '' ? [] : list.split(' ').map(Number) }
  })
}

let clock = 0
/** All of them overlap, unless they say when they ran. */
function txn(text: string, rest: Partial<ListTransaction> = {}): ListTransaction {
  return { name: text, ops: ops(text), outcome: 'committed', begin: clock++, end: 1e9 + clock, ...rest }
}
const ran = (begin: number, end: number) => ({ begin, end })
const aborted = { outcome: 'aborted' } as const
const unknown = { outcome: 'unknown' } as const

const found: [what: string, types: AnomalyType[], history: ListTransaction[]][] = [
  ['G0: two keys in different orders', ['G0'], [txn('x+1, y+2'), txn('x+3, y+4'), txn('x[1 3], y[4 2]')]],
  ['G0 against real time', ['G0-realtime'], [txn('x+1', ran(1, 2)), txn('x+2', ran(3, 4)), txn('x[2 1]', ran(5, 6))]],
  ['G1a', ['G1a'], [txn('x+1', aborted), txn('x[1]')]],
  ['G1b', ['G1b'], [txn('x+1, x+2'), txn('x[1]'), txn('x[1 2]')]],
  ['G1b by a writer', ['G1b'], [txn('x+1, x+2'), txn('x[1], x+3, x[1 3]')]],
  ['G1c', ['G1c'], [txn('x+1, y[2]'), txn('y+2, x[1]')]],
  ['G1c of three', ['G1c'], [txn('x+1, z[3]'), txn('y+2, x[1]'), txn('z+3, y[2]')]],
  ['G-single: read skew', ['G-single'], [txn('x+1, y+2'), txn('x[], y[2]'), txn('x[1]')]],
  ['G-single: a lost update', ['incompatible-order'], [txn('x[], x+1, x[1]'), txn('x[], x+2, x[2]')]],
  ['G-single by a write', ['G-single'], [txn('x+1, y+2'), txn('x[], y+3'), txn('x[1], y[2 3]')]],
  ['a stale read', ['G-single-realtime'], [txn('x+1', ran(1, 2)), txn('x[]', ran(3, 4)), txn('x[1]', ran(5, 6))]],
  ['G-nonadjacent: the long fork', ['G-nonadjacent'], [txn('x+1'), txn('y+2'), txn('x[1], y[]'), txn('y[2], x[]')]],
  ['G2: write skew', ['G2'], [txn('x[], y+1'), txn('y[], x+2'), txn('x[2], y[1]')]],
  [
    'G2: the read-only anomaly',
    ['G2'],
    [txn('x[], y[], x+1'), txn('y[], y+2'), txn('x[], y[2]'), txn('x[1], y[2]', ran(2e9, 3e9))],
  ],
  [
    'G2 against real time',
    ['G2-realtime'],
    [txn('y[], x+2', ran(1, 10)), txn('y+3', ran(2, 3)), txn('x[]', ran(5, 6)), txn('x[2], y[3]', ran(11, 12))],
  ],
  ['orders that contradict each other', ['incompatible-order'], [txn('x+1'), txn('x+2'), txn('x[1 2]'), txn('x[2]')]],
  ['a lost append', ['lost-append'], [txn('x+1', ran(1, 2)), txn('x[]', ran(3, 4))]],
  ['half of one that may have committed', ['lost-append'], [txn('x+1, y+2', unknown), txn('x[1], y[]')]],
  [
    'half of one that may have committed, later',
    ['lost-append'],
    [txn('x+1, y+2', unknown), txn('x[1]', ran(1, 2)), txn('y[]', ran(3, 4))],
  ],
  ['a value twice in a list', ['duplicate'], [txn('x+1'), txn('x[1 1]')]],
  ['a value appended twice', ['duplicate'], [txn('x+1'), txn('y+1')]],
  ['a value from nowhere', ['unwritten'], [txn('x[7]')]],
  ['a value of another key', ['unwritten'], [txn('y+7'), txn('x[7]')]],
  ['two reads that differ', ['internal'], [txn('x[], x[1]'), txn('x+1')]],
  ['an own append not seen', ['internal'], [txn('x+1, x[]')]],
  ['an own append before others', ['internal'], [txn('x+1, x[1 2]'), txn('x+2')]],
  [
    'a dirty read of one that may have committed makes its other anomalies count',
    ['G1c'],
    [txn('x+1, y[2]', unknown), txn('y+2, x[1]')],
  ],
]

test.each(found)('finds %s', (_what, types, history) => {
  const anomalies = checkListAppend(history)
  const all = anomalies.map(({ type }) => type)
  expect(all, JSON.stringify(anomalies, undefined, 1)).toEqual(expect.arrayContaining(types))
})

const good: [what: string, history: ListTransaction[]][] = [
  ['nothing', []],
  ['one after another', [txn('x+1', ran(1, 2)), txn('x[1], x+2, x[1 2]', ran(3, 4)), txn('x[1 2]', ran(5, 6))]],
  ['overlapping, in any order', [txn('x[1], y+2'), txn('x+1, y[]'), txn('y[2]')]],
  ['own appends before the first read', [txn('x+1'), txn('x+2, x[1 2]'), txn('x[1 2]')]],
  ['an aborted transaction that nobody saw', [txn('x+1', aborted), txn('x[]'), txn('x+2'), txn('x[2]')]],
  ['one that may have committed, and did', [txn('x+1', unknown), txn('x[1]')]],
  ['one that may have committed, and did not', [txn('x+1', unknown), txn('x[], x+2'), txn('x[2]')]],
  [
    'one that may have committed has no end',
    [txn('x+1', { ...unknown, ...ran(1, 2) }), txn('x[]', ran(3, 4)), txn('x[1]')],
  ],
  ['an append that nobody could have read', [txn('x[]', ran(1, 2)), txn('x+1', ran(3, 4))]],
]

test.each(good)('accepts %s', (_what, history) => {
  expect(checkListAppend(history)).toEqual([])
})

test('finds what was planted in a long history of transactions one after another', () => {
  const lists = new Map<string, number[]>()
  const serial = Array.from({ length: 3000 }, (_, i): ListTransaction => {
    const keys = [`k${i % 7}`, `k${(i * 5 + 1) % 7}`]
    const ops = keys.flatMap((key, n): ListOp[] => {
      const values = lists.get(key) ?? []
      if (n === 0) lists.set(key, [...values, i])
      return n === 0 ? [{ type: 'append', key, value: i }] : [{ type: 'read', key, values }]
    })
    return { name: `T${i}`, ops, outcome: 'committed', begin: 10 * i, end: 10 * i + 25 } // Each overlaps two others.
  })
  expect(checkListAppend(serial)).toEqual([])
  const victim = serial[1500] as ListTransaction
  const stale = victim.ops.map((op) => (op.type === 'read' ? { ...op, values: op.values.slice(0, -3) } : op))
  const planted = serial.with(1500, { ...victim, ops: stale })
  expect(checkListAppend(planted).map(({ type }) => type)).toContain('G-single')
})

// ---- The server

const { seed, txns } = settings({ seed: 1, txns: 120, kills: 0 })

describe.each(MODES)('%s', (mode) => {
  describe.each(ISOLATIONS)('%s', (isolation) => {
    let server: TestServer
    let url: string
    beforeAll(async () => {
      server = await startServer()
      url = `http://127.0.0.1:${await server.listen()}`
    })
    afterAll(async () => {
      server.app.server.closeAllConnections() // Of one that hung up before it asked, a server waits for the request.
      await server.app.close()
      await server.store.close()
      await rm(server.directory, { recursive: true, force: true })
    })

    test('concurrent appends and reads', async () => {
      const db = connect(url)
      const workload = new ListAppendWorkload({ url, isUp: async () => {} }, { seed, mode, isolation, db })
      await workload.run(txns)
      await workload.readAll()
      await db.close()
      const { counts } = workload
      report({ test: 'list-append', seed, mode, isolation, ...counts })
      expect(forbiddenAnomalies(workload.history(), { mode, isolation }), JSON.stringify({ seed, ...counts })).toEqual(
        [],
      )
      // Were most refused, there would be little to find.
      expect(counts.committed, JSON.stringify({ seed, ...counts })).toBeGreaterThan(txns / 4)
    })
  })
})
