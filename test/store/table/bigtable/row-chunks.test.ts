import { expect, test } from 'vitest'
import { type CellChunk, RowChunks } from '../../../../src/store/table/bigtable/row-chunks.js'

const NOTHING = Buffer.alloc(0)

interface Piece {
  readonly key?: string
  readonly family?: string
  readonly qualifier?: string
  readonly value?: string
  readonly label?: string
  readonly size?: number
  readonly status?: 'commit' | 'reset'
}

function chunkOf({ key = '', family, qualifier, label, value = '', size = 0, status }: Piece): CellChunk {
  return {
    rowKey: Buffer.from(key),
    familyName: family === undefined ? null : { value: family },
    qualifier: qualifier === undefined ? null : { value: Buffer.from(qualifier) },
    labels: label === undefined ? [] : [label],
    value: value === '' ? NOTHING : Buffer.from(value),
    valueSize: size,
    resetRow: status === 'reset',
    commitRow: status === 'commit',
  }
}

function add(chunks: RowChunks, ...pieces: Piece[]): RowChunks {
  for (const piece of pieces) chunks.add(chunkOf(piece))
  return chunks
}

function rowsOf(chunks: RowChunks): string[] {
  return chunks.rows.map(({ key, cells }) =>
    [key, ...cells.map(({ family, qualifier, value }) => `${family}:${qualifier}=${value}`)].join(' '),
  )
}

test('what is absent is as in the piece before', () => {
  const chunks = add(
    new RowChunks(),
    { key: 'a', family: 'w', qualifier: 'x', value: '1' },
    { qualifier: 'y', value: '2' },
    { family: 'v', qualifier: '', value: '3' },
    { family: 'o', qualifier: 'z', status: 'commit' },
    { key: 'b', family: 'w', qualifier: 'x', value: '4', status: 'commit' },
  )
  chunks.end()
  expect(rowsOf(chunks)).toEqual(['a o:z= v:=3 w:x=1 w:y=2', 'b w:x=4'])
})

test('cells with a label only show that their row was passed', () => {
  const passed = { family: 'w', qualifier: 'x', label: 'passed' }
  const chunks = add(
    new RowChunks(),
    { key: 'a', ...passed, status: 'commit' },
    { key: 'b', ...passed },
    { family: 'w', qualifier: 'x', value: '1', status: 'commit' },
    { key: 'c', family: 'v', qualifier: 'r', value: '2' },
    { ...passed, status: 'commit' },
    { key: 'd', ...passed, status: 'commit' },
    { key: 'e', family: 'w', qualifier: 'x', value: '3' },
  )
  expect(rowsOf(chunks)).toEqual(['b w:x=1', 'c v:r=2'])
  expect(chunks).toMatchObject({ count: 4, lastKey: Buffer.from('d') })
})

test('a column that several filters let through comes once', () => {
  const x = { family: 'w', qualifier: 'x', value: '1' }
  const y = { family: 'w', qualifier: 'y', value: '2' }
  const chunks = add(new RowChunks(), { key: 'a', ...x }, { value: '1' }, y, { family: 'l', qualifier: 'l' }, y)
  expect(rowsOf(add(chunks, { ...x, status: 'commit' }))).toEqual(['a l:l= w:x=1 w:y=2'])
})

test('a value comes in pieces, and its row is forgotten when it is reset or broken off', () => {
  const begin = { key: 'a', family: 'd', qualifier: 'x', value: 'lo', size: 4 }
  const whole = [begin, { value: 'ng', status: 'commit' }] as const
  expect(rowsOf(add(new RowChunks(), ...whole))).toEqual(['a d:x=long'])
  expect(rowsOf(add(new RowChunks(), { ...begin, value: 'LO' }, { status: 'reset' }, ...whole))).toEqual(['a d:x=long'])
  const chunks = add(new RowChunks(), { ...begin, value: 'LO' })
  expect(() => chunks.end()).toThrow('ends within a row')
  chunks.breakOff()
  chunks.end()
  expect(rowsOf(add(chunks, ...whole))).toEqual(['a d:x=long'])
})

test('a cell without a row or a column is refused', () => {
  expect(() => add(new RowChunks(), { family: 'w', qualifier: 'x' })).toThrow('a cell without a row')
  expect(() => add(new RowChunks(), { key: 'a', status: 'commit' })).toThrow('a cell without a row')
})

test('short values do not keep their message', () => {
  const message = Buffer.alloc(1 << 20)
  const chunks = new RowChunks()
  chunks.add({
    ...chunkOf({ key: 'a', family: 'v', qualifier: 'r', status: 'commit' }),
    value: message.subarray(5, 21),
  })
  expect(chunks.rows[0]?.cells[0]?.value.buffer).not.toBe(message.buffer)
})
