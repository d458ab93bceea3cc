import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { REVISION } from '../../../src/store/table/layout/layout.js'
import type {
  ChangeTogether,
  ColumnWrite,
  RowCondition,
  RowsRequest,
  Table,
} from '../../../src/store/table/layout/table.js'
import { plant } from '../../bigtable/plant.js'

const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')
const revision = (value: string): ColumnWrite & RowCondition['expected'] => ({
  family: 'v',
  qualifier: REVISION,
  value: bytes(value),
})
const record = (value: string): ColumnWrite => ({ family: 'w', qualifier: bytes('a'), value: bytes(value) })
const row = (key: string, was: string): RowCondition => ({ key: bytes(key), expected: revision(was) })

/** A promise and what fulfils it. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}

/** What an engine whose rows change together has to do. @param openTwice a new, empty table, as two servers have it open. */
export function togetherSuite(openTwice: () => Promise<readonly [Table, Table]>): void {
  const opened: Table[] = []
  let table: Table
  let other: Table

  beforeEach(async () => {
    const both = await openTwice()
    opened.push(...both)
    ;[table, other] = both
  })

  afterAll(() => Promise.all(opened.map((each) => each.close())))

  const together = (...given: Parameters<ChangeTogether>): ReturnType<ChangeTogether> => {
    if (table.changeTogether === undefined) throw new Error('rows of this table do not change together')
    return table.changeTogether(...given)
  }

  const all = { start: bytes(''), end: undefined }

  async function textsOf(request: Omit<RowsRequest, 'columns'>, from = other): Promise<string[]> {
    const rows = await from.rows({ ...request, columns: [{ family: 'v' }, { family: 'w' }] })
    return rows.map(({ key, cells }) => `${key}: ${cells.map(({ value }) => value).join(' ')}`)
  }

  async function makeRows(...keys: string[]): Promise<void> {
    for (const key of keys) await plant(table, bytes(key), [revision('1'), record('old')])
  }

  /** A change of `a` and `b` that holds them until it is let go. */
  async function held(): Promise<{ readonly changed: Promise<string>; letGo(): void }> {
    const [isHeld, goes] = [gate(), gate()]
    const changed = together([row('a', '1'), row('b', '1')], async () => {
      isHeld.open()
      await goes.opened
      return [
        [revision('2'), record('new')],
        [revision('2'), record('new')],
      ]
    })
    await Promise.race([isHeld.opened, changed])
    return { changed, letGo: goes.open }
  }

  describe('rows that change together', () => {
    test('are all changed, in whatever order they are named', async () => {
      await makeRows('a', 'b', 'c')
      const changed = await together([row('b', '1'), row('c', '1'), row('a', '1')], async () => [
        [revision('2'), record('new')],
        [revision('2')],
        [{ family: 'w' }, revision('2')],
      ])
      expect(changed).toBe('done')
      expect(await textsOf({ ranges: [all] })).toEqual(['a: 2', 'b: 2 new', 'c: 2 old'])
    })

    test.each([
      ['one is another', 'b', '0'],
      ['one is not there', 'c', '1'],
    ] as const)('are not changed if %s, and nobody is asked what to write', async (_, key, was) => {
      await makeRows('a', 'b')
      let asked = 0
      const writes = async () => {
        asked++
        return [[revision('2')], [revision('2')]]
      }
      expect(await together([row('a', '1'), row(key, was)], writes)).toBe('refused')
      expect(asked).toBe(0)
      expect(await textsOf({ ranges: [all] })).toEqual(['a: 1 old', 'b: 1 old'])
      expect(await other.change(bytes('a'), revision('1'), [revision('2')])).toBe('done')
    })

    test('stay as they are, and are free, if whoever writes gives up or fails', async () => {
      await makeRows('a', 'b')
      const rows = [row('a', '1'), row('b', '1')]
      expect(await together(rows, async () => undefined)).toBe('refused')
      const failure = new Error('no timestamp')
      await expect(together(rows, () => Promise.reject(failure))).rejects.toBe(failure)
      expect(await textsOf({ ranges: [all] })).toEqual(['a: 1 old', 'b: 1 old'])
      for (const key of ['a', 'b']) expect(await other.change(bytes(key), revision('1'), [revision('2')])).toBe('done')
    })

    test('are locked meanwhile: other changes of them wait, and find what was written', async () => {
      await makeRows('a', 'b', 'c')
      const { changed, letGo } = await held()
      expect(await other.change(bytes('c'), revision('1'), [revision('2')])).toBe('done')
      const waiting = [
        other.change(bytes('b'), revision('1'), [revision('wrong')]),
        other.change(bytes('a'), revision('2'), [revision('3')]),
      ]
      expect(await textsOf({ ranges: [all] })).toEqual(['a: 1 old', 'b: 1 old', 'c: 2 old'])
      letGo()
      expect(await changed).toBe('done')
      expect(await Promise.all(waiting)).toEqual(['refused', 'done'])
      expect(await textsOf({ ranges: [all] })).toEqual(['a: 3 new', 'b: 2 new', 'c: 2 old'])
    })

    test.each<[string, Omit<RowsRequest, 'columns'>]>([
      ['of a key', { keys: [bytes('b')] }],
      ['of several', { keys: [bytes('x'), bytes('c'), bytes('a'), bytes('b')] }],
      ['of a range', { ranges: [{ start: bytes('b'), end: bytes('c') }] }],
    ])('are waited for by a settled read %s, and by no other', async (_, request) => {
      await makeRows('a', 'b', 'c')
      const { changed, letGo } = await held()
      const seen: string[] = []
      const settled = textsOf({ ...request, settled: true }).then((texts) => {
        seen.push('settled')
        return texts
      })
      expect(await textsOf(request)).toContain('b: 1 old')
      expect(await textsOf({ keys: [bytes('c')], settled: true })).toEqual(['c: 1 old'])
      seen.push('let go')
      letGo()
      expect(await settled).toContain('b: 2 new')
      expect(seen).toEqual(['let go', 'settled'])
      expect(await changed).toBe('done')
    })

    test('are waited for by a settled walk', async () => {
      await makeRows('a', 'b', 'c')
      const { changed, letGo } = await held()
      const walk = { range: all, columns: [{ family: 'v' }], limit: 9 } as const
      const settled = other.walk({ ...walk, settled: true })
      const found = await other.walk(walk)
      expect(found.rows.map(({ cells }) => String(cells[0]?.value))).toEqual(['1', '1', '1'])
      letGo()
      expect((await settled).rows.map(({ cells }) => String(cells[0]?.value))).toEqual(['2', '2', '1'])
      expect(await changed).toBe('done')
    })

    test('of two that want the same rows in other orders one is done at most, and both end', async () => {
      await makeRows('a', 'b', 'c')
      const keys = ['a', 'b', 'c'] as const
      const want = (from: Table, order: readonly string[], round: number) =>
        from.changeTogether?.(
          order.map((key) => row(key, `${round}`)),
          async () => order.map(() => [revision(`${round + 1}`)]),
        )
      // Each may have locked what the other one wants.
      for (let round = 1; round <= 10; ) {
        const outcomes = await Promise.all([want(table, keys, round), want(other, keys.toReversed(), round)])
        expect(outcomes.filter((each) => each !== 'refused').length, `${outcomes}`).toBeLessThan(2)
        if (outcomes.includes('done')) round++
      }
    })

    test('what is moved between rows by many is neither lost nor seen half by who reads settled after it was told', async () => {
      const keys = ['a', 'b', 'c', 'd']
      for (const key of keys) await plant(table, bytes(key), [revision('0/100')])
      const columns = [{ family: 'v' }] as const
      let done = 0
      const move = async (from: Table, name: number): Promise<void> => {
        for (let i = 0; i < 10; ) {
          const [one, two] = [keys[(name + i) % 4], keys[(name + i + 1 + (i % 3)) % 4]] as [string, string]
          const read = await from.rows({ keys: [bytes(one), bytes(two)], columns })
          const value = new Map(read.map(({ key, cells }) => [String(key), String(cells[0]?.value)]))
          const [a, b] = [value.get(one) ?? '', value.get(two) ?? '']
          const next = (was: string, by: number) => [revision(`${name}.${i}.${done}/${Number(was.split('/')[1]) + by}`)]
          const changed = await from.changeTogether?.([row(one, a), row(two, b)], async () => [next(a, -1), next(b, 1)])
          expect(['done', 'refused']).toContain(changed)
          if (changed !== 'done') continue
          done++
          i++
        }
      }
      await Promise.all([0, 1, 2, 3].map((name) => move(name % 2 === 0 ? table : other, name)))
      const rows = await other.rows({ ranges: [all], columns, settled: true })
      const amounts = rows.map(({ cells }) => Number(String(cells[0]?.value).split('/')[1]))
      expect(amounts.reduce((sum, each) => sum + each, 0)).toBe(400)
      expect(done).toBe(40)
    })
  })
}
