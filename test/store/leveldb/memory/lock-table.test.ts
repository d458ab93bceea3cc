import { describe, expect, test } from 'vitest'
import { runToEnd } from '../../../../src/event-loop/time-slicer.js'
import type { Lock } from '../../../../src/percolator/lock.js'
import { LockTable } from '../../../../src/store/leveldb/memory/lock-table.js'
import { text, utf8 } from '../../support.js'

const lockAt = (startTs: number): Lock => ({
  type: 'put',
  primary: utf8('p'),
  startTs,
  ttlMs: 3000,
  shortValue: undefined,
  expireTs: 0,
  leaseFence: 0,
  forUpdateTs: 0,
  txnSize: 0,
  minCommitTs: 0,
  useAsyncCommit: false,
  secondaries: [],
  rollbackTs: [],
})

const keysIn = (table: LockTable, start?: string, end?: string, reverse = false): string[] =>
  [
    ...table.range(start === undefined ? undefined : utf8(start), end === undefined ? undefined : utf8(end), reverse),
  ].map(({ key }) => text(key))

test('what was put is there, by the bytes of its key', () => {
  const table = new LockTable()
  expect(table.get(utf8('a'))).toBeUndefined()
  table.put(utf8('a'), lockAt(5))
  expect(table.get(new Uint8Array([0x61]))?.lock.startTs).toBe(5)
  expect(table.get(utf8('b'))).toBeUndefined()
  expect(table.size).toBe(1)
})

test('putting again replaces the lock and its batch', () => {
  const table = new LockTable()
  const pending = Promise.resolve()
  table.put(utf8('a'), lockAt(5), pending)
  expect(table.get(utf8('a'))?.pending).toBe(pending)
  table.put(utf8('a'), lockAt(6))
  expect(table.get(utf8('a'))).toMatchObject({ key: utf8('a'), lock: lockAt(6), pending: undefined })
  expect(table.size).toBe(1)
  expect(keysIn(table)).toEqual(['a'])
})

test('delete and clear', () => {
  const table = new LockTable()
  for (const key of ['a', 'b', 'c']) table.put(utf8(key), lockAt(5))
  table.delete(utf8('b'))
  table.delete(utf8('not there'))
  expect(keysIn(table)).toEqual(['a', 'c'])
  expect(table.get(utf8('b'))).toBeUndefined()
  table.clear()
  expect(table.size).toBe(0)
  expect(keysIn(table)).toEqual([])
  table.put(utf8('b'), lockAt(7))
  expect(keysIn(table)).toEqual(['b'])
})

test('ranges are half open, in byte order, both ways', () => {
  const table = new LockTable()
  for (const key of ['c', 'a', 'b', 'aa', 'd']) table.put(utf8(key), lockAt(5))
  expect(keysIn(table)).toEqual(['a', 'aa', 'b', 'c', 'd'])
  expect(keysIn(table, 'aa', 'c')).toEqual(['aa', 'b'])
  expect(keysIn(table, 'aa', 'c', true)).toEqual(['b', 'aa'])
  expect(keysIn(table, undefined, 'b', true)).toEqual(['aa', 'a'])
  expect(keysIn(table, 'bb')).toEqual(['c', 'd'])
  expect(keysIn(table, 'c', 'a')).toEqual([])
  expect(keysIn(table, 'c', 'a', true)).toEqual([])
})

test('bytes that are no text keep their order', () => {
  const table = new LockTable()
  const keys = [[0xff], [0x00], [0x7f, 0x00], [0x80], [0xc3, 0x28], [0xff, 0x00]]
  for (const key of keys) table.put(Uint8Array.from(key), lockAt(5))
  expect([...table.range()].map(({ key }) => [...key])).toEqual([
    [0x00],
    [0x7f, 0x00],
    [0x80],
    [0xc3, 0x28],
    [0xff],
    [0xff, 0x00],
  ])
  expect(table.get(Uint8Array.from([0x80]))).toBeDefined()
  expect(table.get(Uint8Array.from([0x81]))).toBeUndefined()
})

describe('a walk that others interrupt', () => {
  const COUNT = 10_000
  const nameOf = (i: number): string => `k${String(i).padStart(6, '0')}`
  function tableOf(): LockTable {
    const table = new LockTable()
    for (let i = 0; i < COUNT; i++) table.put(utf8(nameOf(i)), lockAt(5))
    return table
  }
  const bounds = [{}, { start: utf8(nameOf(100)), end: utf8(nameOf(9000)) }, { start: utf8(nameOf(COUNT)) }]

  test.each([false, true])('meets what a range does, in its order (reverse: %s)', (reverse) => {
    const table = tableOf()
    for (const range of bounds) {
      const met: string[] = []
      runToEnd(table.walk(range, ({ key }) => met.push(text(key)) > 0, { reverse }))
      expect(met).toEqual([...table.range(range.start, range.end, reverse)].map(({ key }) => text(key)))
    }
  })

  test('ends where it is told', () => {
    const met: string[] = []
    runToEnd(tableOf().walk({}, ({ key }) => met.push(text(key)) < 3))
    expect(met).toEqual([0, 1, 2].map(nameOf))
  })

  test.each([false, true])('goes on past entries that come and go (reverse: %s)', (reverse) => {
    const table = tableOf()
    const met: string[] = []
    const walk = table.walk({}, ({ key }) => met.push(text(key)) > 0, { reverse })
    walk.next()
    const [behind, last, ahead] = [met[0], met.at(-1), nameOf(reverse ? 5 : COUNT - 5)] as [string, string, string]
    for (const name of [behind, last, ahead]) table.delete(utf8(name))
    table.put(utf8(`${ahead}x`), lockAt(5))
    runToEnd(walk)
    expect(new Set(met).size).toBe(met.length)
    expect(met).not.toContain(ahead)
    expect(met).toContain(`${ahead}x`)
    expect(met).toHaveLength(COUNT)
  })
})
