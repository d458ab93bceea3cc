import { describe, expect, test } from 'vitest'
import { decodeOracleRecord, encodeOracleRecord, isNewer } from '../../src/oracle/oracle-row.js'

const RECORD = { epoch: 3, url: 'http://a:1', id: 'x', mark: 3_400_000_000_000_000, beat: 12 }

describe('a record of the row', () => {
  test('is read as it was written', () => {
    expect(decodeOracleRecord(encodeOracleRecord(RECORD))).toEqual(RECORD)
  })

  test.each<[string, object]>([
    ['no epoch', { epoch: undefined }],
    ['epoch 0', { epoch: 0 }],
    ['an epoch that is no integer', { epoch: 1.5 }],
    ['a negative mark', { mark: -1 }],
    ['a mark above all timestamps', { mark: 2 ** 53 }],
    ['a mark that is text', { mark: '1' }],
    ['no beat', { beat: undefined }],
    ['a URL that is no text', { url: 7 }],
    ['a long URL', { url: 'u'.repeat(2049) }],
    ['a long id', { id: 'i'.repeat(129) }],
    ['more than it should have', { colour: 'red' }],
  ])('with %s is damaged', (_, change) => {
    const bytes = new TextEncoder().encode(JSON.stringify({ ...RECORD, ...change }))
    expect(() => decodeOracleRecord(bytes)).toThrow('damaged')
  })

  test.each(['', '[]', 'null', '1', '{', `{"epoch":1}${' '.repeat(9000)}`])('is not %j', (text) => {
    expect(() => decodeOracleRecord(new TextEncoder().encode(text))).toThrow('damaged')
  })

  test('is not bytes that are no text', () => {
    expect(() => decodeOracleRecord(new Uint8Array([0xff, 0xfe]))).toThrow('damaged')
  })
})

test.each([
  [{ epoch: 4, beat: 1 }, true],
  [{ epoch: 2, beat: 99 }, false],
  [{ epoch: 3, beat: 13 }, true],
  [{ epoch: 3, beat: 12 }, false],
  [{ epoch: 3, beat: 11 }, false],
])('%j is newer than epoch 3, beat 12: %s', (change, expected) => {
  expect(isNewer({ ...RECORD, ...change }, RECORD)).toBe(expected)
})
