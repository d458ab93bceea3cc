import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { encodeWrite } from '../../../src/percolator/codec/write.js'
import { rollbackRecord } from '../../../src/percolator/write.js'
import { candidateColumns, descending, REVISION } from '../../../src/store/table/layout/layout.js'
import type {
  Cell,
  ColumnRange,
  ColumnWrite,
  Expected,
  Family,
  RowRange,
  Table,
  WalkedRows,
  WalkRequest,
} from '../../../src/store/table/layout/table.js'
import { plant } from '../../bigtable/plant.js'

const ALL: readonly ColumnRange[] = (['l', 'w', 'r', 'd', 'v', 'o'] as const).map((family) => ({ family }))
const W: readonly ColumnRange[] = [{ family: 'w' }]
const MIB = 1 << 20
const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')
const number = (n: number): Buffer => {
  const out = Buffer.alloc(8)
  out.writeBigUInt64BE(BigInt(n))
  return out
}
const write = (family: Family, qualifier: string | Buffer, value: string | Buffer | undefined): ColumnWrite => ({
  family,
  qualifier: typeof qualifier === 'string' ? bytes(qualifier) : qualifier,
  value: typeof value === 'string' ? bytes(value) : value,
})
const expected: (...args: Parameters<typeof write>) => Expected = write
const cellTexts = (cells: readonly Cell[]): string[] =>
  cells.map(({ family, qualifier, value }) => `${family}:${qualifier.toString('latin1')}=${value.toString('latin1')}`)

/** What every engine has to do with one table. @param openOwnTable a new, empty one. */
export function tableSuite(openOwnTable: () => Promise<Table>): void {
  const opened: Table[] = []
  let table: Table

  beforeEach(async () => {
    table = await openOwnTable()
    opened.push(table)
  })

  afterAll(() => Promise.all(opened.map((each) => each.close())))

  async function putRows(...keys: string[]): Promise<void> {
    for (const key of keys) await plant(table, bytes(key), [write('w', 'a', `of ${key}`)])
  }

  async function keysOf(request: Parameters<Table['rows']>[0]): Promise<string[]> {
    return (await table.rows(request)).map(({ key }) => key.toString('latin1'))
  }

  async function rowText(key: string, columns = ALL): Promise<string[]> {
    const [row] = await table.rows({ keys: [bytes(key)], columns })
    return row === undefined ? [] : cellTexts(row.cells)
  }

  describe('rows', () => {
    test('come with their families and columns in order, whatever was written first', async () => {
      await plant(table, bytes('k'), [
        write('w', 'b', '2'),
        write('v', 'r', '4'),
        write('w', 'a', '1'),
        write('d', 'x', '0'),
      ])
      expect(await rowText('k')).toEqual(['d:x=0', 'v:r=4', 'w:a=1', 'w:b=2'])
      await plant(table, bytes('k'), [write('w', 'a', 'new'), write('w', 'b', undefined), write('d', 'y', undefined)])
      expect(await rowText('k')).toEqual(['d:x=0', 'v:r=4', 'w:a=new'])
    })

    test('are none without keys and ranges, in empty ranges, and without columns', async () => {
      await putRows('a')
      const empty = { start: bytes('b'), end: bytes('b') }
      const before = table.calls.read
      expect(await table.rows({ columns: W })).toEqual([])
      expect(await table.rows({ keys: [], ranges: [], columns: W })).toEqual([])
      expect(await table.rows({ ranges: [empty, { start: bytes('b'), end: Buffer.alloc(0) }], columns: W })).toEqual([])
      expect(await table.rows({ keys: [bytes('a')], columns: [] })).toEqual([])
      expect(await table.rows({ keys: [bytes('a')], columns: [{ family: 'o' }] })).toEqual([])
      expect(table.calls.read).toBe(before + 1)
    })

    test('of keys come once each, in order, and those without a cell in the columns do not', async () => {
      await putRows('a', 'b', 'c')
      await plant(table, bytes('d'), [write('v', 'r', '1')])
      const keys = ['d', 'c', 'zz', 'a', 'c', 'b'].map(bytes)
      expect(await keysOf({ keys, columns: W })).toEqual(['a', 'b', 'c'])
    })

    test('of ranges and keys that overlap come once', async () => {
      await putRows('a', 'b', 'c', 'd', 'e')
      const range = (start: string, end?: string) => ({
        start: bytes(start),
        end: end === undefined ? end : bytes(end),
      })
      const cases: [Parameters<Table['rows']>[0], string][] = [
        [{ ranges: [range('b', 'd')], columns: W }, 'bc'],
        [{ ranges: [range('')], columns: W }, 'abcde'],
        [{ ranges: [range('c'), range('a', 'b')], columns: W }, 'acde'],
        [{ ranges: [range('a', 'c'), range('b', 'e')], keys: [bytes('b'), bytes('e')], columns: W }, 'abcde'],
        [{ ranges: [range('b')], limit: 2, columns: W }, 'bc'],
        [{ ranges: [range('a', 'b'), range('d')], limit: 2, columns: W }, 'ad'],
        [{ ranges: [range('a', 'd')], limit: 0, columns: W }, ''],
      ]
      for (const [request, keys] of cases) expect((await keysOf(request)).join('')).toBe(keys)
    })

    test('are walked over up and down to the limit, past rows that have no such columns', async () => {
      await putRows('a', 'b', 'e')
      for (const key of ['c', 'd', 'f']) await plant(table, bytes(key), [write('v', 'r', '1')])
      const of = { columns: [{ family: 'w', limit: 1 }] as const, range: { start: bytes('a'), end: undefined } }
      const walked = async ({ limit, ...request }: Omit<WalkRequest, 'columns'>): Promise<(string | undefined)[]> => {
        const keys: string[] = []
        let left: RowRange | undefined = request.range
        // A step may leave a part of the range before it has found as many.
        while (left !== undefined && keys.length < limit) {
          const step: WalkedRows = await table.walk({ ...of, ...request, range: left, limit: limit - keys.length })
          keys.push(...step.rows.map(({ key }) => String(key)))
          left = step.left
        }
        return [...keys, left && `${left.start}-${left.end ?? ''}`]
      }
      expect(await walked({ ...of, limit: 9 })).toEqual(['a', 'b', 'e', undefined])
      expect(await walked({ ...of, limit: 2 })).toEqual(['a', 'b', 'b\0-'])
      expect(await walked({ ...of, limit: 2, reverse: true })).toEqual(['e', 'b', 'a-b'])
      expect(await walked({ range: { start: bytes('b'), end: bytes('e') }, limit: 9, reverse: true })).toEqual([
        'b',
        undefined,
      ])
      expect(await walked({ range: { start: bytes('c'), end: bytes('e') }, limit: 1 })).toEqual([undefined])
    })

    test('have the columns of all ranges, each up to its own limit, and none twice', async () => {
      const columns = [1, 3, 5, 7, 9].map((n) => write('w', number(n), String(n)))
      await plant(table, bytes('k'), [...columns, write('r', number(4), 'r4'), write('v', 'r', 'rev')])
      const read = async (...ranges: ColumnRange[]): Promise<string> => {
        const [row] = await table.rows({ keys: [bytes('k')], columns: ranges })
        return (row?.cells ?? []).map(({ value }) => value.toString()).join(' ')
      }
      expect(await read({ family: 'w', from: number(3), to: number(7) })).toBe('3 5 7')
      expect(await read({ family: 'w', from: number(4), limit: 2 })).toBe('5 7')
      expect(await read({ family: 'w', to: number(4) })).toBe('1 3')
      expect(await read({ family: 'w', from: number(5), to: number(5) })).toBe('5')
      expect(await read({ family: 'w', from: number(6), to: number(6) })).toBe('')
      expect(await read({ family: 'w', to: number(5) }, { family: 'w', from: number(4), limit: 1 })).toBe('1 3 5')
      expect(await read({ family: 'w', limit: 1 }, { family: 'v' }, { family: 'r', limit: 1 })).toBe('r4 rev 1')
      expect(await read({ family: 'w', from: number(10) }, { family: 'l' })).toBe('')
    })

    test('hold any bytes in keys, columns and values', async () => {
      const odd = ['\x00', '\x00\xff', '.*', '\\C*\n', '\xff\xfe', '$^[a]']
      for (const text of odd) await plant(table, bytes(`k${text}`), [write('w', text, text), write('o', '', '')])
      for (const text of odd) expect(await rowText(`k${text}`)).toEqual(['o:=', `w:${text}=${text}`])
      expect(await keysOf({ ranges: [{ start: bytes('k'), end: undefined }], columns: W })).toEqual(
        odd.map((text) => `k${text}`).sort((a, b) => Buffer.compare(bytes(a), bytes(b))),
      )
    })

    test('hold long values, which come in pieces', async () => {
      const long = Buffer.alloc(MIB, 'long ')
      const longer = Buffer.alloc(2 * MIB + 1, 'longer ')
      await plant(table, bytes('a'), [write('d', 'x', long), write('d', 'y', 'short'), write('d', 'z', longer)])
      await plant(table, bytes('b'), [write('d', 'x', longer)])
      const rows = await table.rows({ ranges: [{ start: bytes('a'), end: undefined }], columns: [{ family: 'd' }] })
      const values = rows.map(({ cells }) => cells.map(({ value }) => value))
      expect(values.map((each) => each.map(({ length }) => length))).toEqual([[MIB, 5, 2 * MIB + 1], [2 * MIB + 1]])
      expect(values[0]?.[0]?.equals(long) && values[0]?.[2]?.equals(longer) && values[1]?.[0]?.equals(longer)).toBe(
        true,
      )
    })
  })

  describe('change', () => {
    const change = (was: Expected, ...writes: ColumnWrite[]) => table.change(bytes('k'), was, writes)

    test('is done if the column has exactly the value', async () => {
      await putRows('k')
      for (const value of ['', '.*', '\x00', 'a\x00', 'a', 'ab', '\xff', 'b\n', '[b]']) {
        await plant(table, bytes('k'), [write('v', 'r', value)])
        for (const other of ['.', 'a\x00\x00', 'ac', '\xff\x00', 'c'])
          expect(await change(expected('v', 'r', other), write('v', 'r', 'wrong'))).toBe('refused')
        expect(await change(expected('v', 'r', undefined), write('v', 'r', 'wrong'))).toBe('refused')
        expect(await change(expected('v', 'r', value), write('w', 'b', value))).toBe('done')
        expect(await rowText('k')).toEqual([`v:r=${value}`, 'w:a=of k', `w:b=${value}`])
      }
    })

    test('looks at no other column and no other family', async () => {
      await plant(table, bytes('k'), [write('v', 'r2', 'x'), write('v', '', 'x'), write('w', 'r', 'x')])
      expect(await change(expected('v', 'r', 'x'), write('v', 'r', 'wrong'))).toBe('refused')
      expect(await change(expected('v', 'r', undefined), write('v', 'r', 'y'))).toBe('done')
      expect(await change(expected('v', 'r', undefined), write('v', 'r', 'wrong'))).toBe('refused')
      expect(await change(expected('v', '', 'x'), write('v', '', undefined))).toBe('done')
      expect(await rowText('k')).toEqual(['v:r=y', 'v:r2=x', 'w:r=x'])
    })

    test('makes the row and takes its last column away', async () => {
      expect(await change(expected('v', 'r', 'x'), write('v', 'r', 'wrong'))).toBe('refused')
      expect(await change(expected('v', 'r', undefined), write('v', 'r', number(1)))).toBe('done')
      expect(await change(expected('v', 'r', number(1)), write('v', 'r', undefined))).toBe('done')
      expect(await keysOf({ ranges: [{ start: bytes(''), end: undefined }], columns: ALL })).toEqual([])
      expect(table.calls).toMatchObject({ change: 3 })
    })

    test('writes all or nothing, and deletes and writes in order', async () => {
      await plant(table, bytes('k'), [write('w', 'a', '1'), write('r', 'a', '1')])
      const writes = [
        write('r', 'a', undefined),
        write('w', 'a', undefined),
        write('w', 'a', '2'),
        write('d', 'a', '3'),
      ]
      expect(await change(expected('w', 'a', '2'), ...writes)).toBe('refused')
      expect(await rowText('k')).toEqual(['r:a=1', 'w:a=1'])
      expect(await change(expected('w', 'a', '1'), ...writes)).toBe('done')
      expect(await rowText('k')).toEqual(['d:a=3', 'w:a=2'])
    })

    test('deletes a family, and writes what comes after it', async () => {
      await plant(table, bytes('k'), [
        write('w', 'a', '1'),
        write('w', 'b', '2'),
        write('d', 'a', '3'),
        write('v', 'r', '1'),
      ])
      const cleared = [{ family: 'w' }, { family: 'r' }, write('w', 'c', '4'), write('v', 'r', '2')] as const
      expect(await table.change(bytes('k'), expected('v', 'r', '2'), cleared)).toBe('refused')
      expect(await table.change(bytes('k'), expected('v', 'r', '1'), cleared)).toBe('done')
      expect(await rowText('k')).toEqual(['d:a=3', 'v:r=2', 'w:c=4'])
    })

    test('of one row by many loses none', async () => {
      const key = bytes('counter')
      const increment = async (): Promise<void> => {
        for (;;) {
          const [row] = await table.rows({ keys: [key], columns: [{ family: 'v' }] })
          const value = row?.cells[0]?.value
          const n = value === undefined ? 0 : Number(value.readBigUInt64BE())
          const changed = await table.change(key, expected('v', 'r', value), [write('v', 'r', number(n + 1))])
          if (changed === 'done') return
        }
      }
      const worker = async (): Promise<void> => {
        for (let i = 0; i < 10; i++) await increment()
      }
      await Promise.all(Array.from({ length: 10 }, worker))
      const [row] = await table.rows({ keys: [key], columns: ALL })
      expect(row?.cells[0]?.value).toEqual(number(100))
    })
  })

  test('nothing is asked of a closed table', async () => {
    await table.close()
    await table.close()
    const failure = { code: 'storage_unavailable' }
    await expect(table.rows({ keys: [bytes('k')], columns: W })).rejects.toMatchObject(failure)
    await expect(table.change(bytes('k'), expected('v', 'r', ''), [write('w', 'a', '1')])).rejects.toMatchObject(
      failure,
    )
  })

  test('rows in which a collection finds something come back, and no others', async () => {
    const table = await openOwnTable()
    const record = (commitTs: number, type: 'put' | 'delete', expireTs = 0) => ({
      family: 'w' as const,
      qualifier: descending(commitTs),
      value: encodeWrite({
        ...rollbackRecord(commitTs - 1, false),
        commitTs,
        type,
        expireTs,
        shortValue: Buffer.of(1),
      }),
    })
    const revision = { family: 'v', qualifier: REVISION, value: Buffer.alloc(16) } as const
    const rows = {
      bare: [revision],
      deleted: [revision, record(10, 'delete')],
      expiring: [revision, record(10, 'put', 15)],
      locked: [revision, { family: 'l' as const, qualifier: Buffer.from('l'), value: Buffer.of(1) }],
      newer: [revision, record(30, 'put'), record(25, 'put')],
      overwritten: [revision, record(30, 'put'), record(10, 'put'), record(5, 'put')],
      removed: [revision, { family: 'o' as const, qualifier: Buffer.from('o'), value: Buffer.of(0xc1) }],
      single: [revision, record(30, 'put'), record(10, 'put')],
    }
    for (const [name, writes] of Object.entries(rows)) await plant(table, Buffer.from(name), writes)
    const range = { start: Buffer.from('a'), end: undefined }
    const found = await table.walk({ range, columns: candidateColumns(20), orBare: true, limit: 100 })
    const shown = found.rows.map(({ key, cells }) => `${key} ${cells.map(({ family }) => family)}`)
    expect(shown).toEqual(['bare v', 'deleted w', 'expiring w', 'overwritten w', 'removed v'])
    expect(await table.change(Buffer.from('bare'), { ...revision, value: Buffer.of(1) }, 'remove')).toBe('refused')
    expect(await table.change(Buffer.from('bare'), revision, 'remove')).toBe('done')
    expect(await table.rows({ ranges: [range], columns: [{ family: 'v' }], limit: 1 })).toMatchObject([
      { key: Buffer.from('deleted') },
    ])
    await table.close()
  })
}
