import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  CorruptRecord,
  decodeKey,
  decodeKeyTs,
  encodeBound,
  encodedKeyBytes,
  encodeKey,
  encodeKeyAt,
  encodeKeyEnd,
} from '../../../src/percolator/codec/key.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'

const CF = 0x77
const withoutPrefix = (encoded: Uint8Array): string => Buffer.from(encoded.subarray(1)).toString('hex')

const keyVectors: [key: string, encoded: string][] = [
  ['', '0000000000000000f7'],
  ['key1', '6b65793100000000fb'],
  ['1234567', '31323334353637' + '00fe'],
  ['12345678', '3132333435363738ff0000000000000000f7'],
  ['123456789', '3132333435363738ff3900000000000000f8'],
  ['\x00', '0000000000000000f8'],
  ['\xff', 'ff00000000000000f8'],
  ['\x00'.repeat(8), '0000000000000000ff0000000000000000f7'],
  ['\xff'.repeat(8), 'ffffffffffffffffff0000000000000000f7'],
  ['\x00\x00perkv', '00007065726b7600fe'],
  ['\x00\x00perkv/', '000000000000000000' + '0000000000000000f7'],
  ['\x00\x00perkv/a', '000000000000000000' + '6100000000000000f8'],
]
for (const [key, encoded] of keyVectors)
  test(`the encoding of ${JSON.stringify(key)}`, () => {
    const bytes = Buffer.from(key, 'latin1')
    const actual = encodeKey(CF, bytes)
    expect(actual[0]).toBe(CF)
    expect(withoutPrefix(actual)).toBe(encoded)
    expect(actual.length).toBe(1 + encodedKeyBytes(bytes.length))
    expect(decodeKey(actual)).toEqual(bytes)
  })

test('reserved keys stand below those of users, at their timestamps too, and a bound of users never does', () => {
  const reserved = Buffer.from('\0\0perkv/outcome/a long one')
  const stored = encodeKeyAt(CF, reserved, 7)
  expect([decodeKey(stored), decodeKeyTs(stored)]).toEqual([reserved, 7])
  expect(stored.compare(encodeKey(CF, Buffer.of()))).toBe(-1)
  expect(stored.compare(encodeKeyEnd(CF, reserved))).toBe(-1)
  expect(encodeBound(CF, reserved).compare(encodeKey(CF, Buffer.of(0)))).toBe(1)
})

const tsVectors: [ts: number, encoded: string][] = [
  [0, 'ffffffffffffffff'],
  [3, 'fffffffffffffffc'],
  [2 ** 32 - 1, 'ffffffff00000000'],
  [2 ** 32, 'fffffffeffffffff'],
  [TIMESTAMP_MAX, 'ffe0000000000000'],
]
for (const [ts, encoded] of tsVectors)
  test(`the encoding of key1 at ${ts}`, () => {
    const actual = encodeKeyAt(CF, Buffer.from('key1'), ts)
    expect(withoutPrefix(actual)).toBe(`6b65793100000000fb${encoded}`)
    expect(decodeKey(actual)).toEqual(Buffer.from('key1'))
    expect(decodeKeyTs(actual)).toBe(ts)
  })

/** The bytes that the encoding itself uses, much more often than by chance. */
const byte = fc.oneof(fc.constantFrom(0x00, 0x01, 0xf7, 0xfe, 0xff), fc.integer({ min: 0, max: 255 }))
const border = fc.constantFrom(0, 1, 7, 8, 9, 15, 16, 17, 24)
const bytes = fc.oneof(
  fc.array(byte, { maxLength: 26 }).map((list) => Uint8Array.from(list)),
  fc.tuple(byte, border).map(([fill, length]) => new Uint8Array(length).fill(fill)),
  border.chain((length) =>
    fc.array(byte, { minLength: length, maxLength: length }).map((list) => Uint8Array.from(list)),
  ),
)
const ts = fc.oneof(
  fc.constantFrom(0, 1, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, TIMESTAMP_MAX),
  fc.integer({ min: 0, max: 20 }),
  fc.integer({ min: 0, max: TIMESTAMP_MAX }),
)
/** Unrelated keys, a key and an extension of it, keys that differ in their last byte, equal keys. */
const keyPair: fc.Arbitrary<[Uint8Array, Uint8Array]> = fc.oneof(
  fc.tuple(bytes, bytes),
  fc.tuple(bytes, bytes).map(([key, tail]): [Uint8Array, Uint8Array] => [key, Buffer.concat([key, tail])]),
  fc.tuple(bytes, byte, byte).map(([key, a, b]): [Uint8Array, Uint8Array] => {
    return [Buffer.concat([key, Buffer.of(a)]), Buffer.concat([key, Buffer.of(b)])]
  }),
  bytes.map((key): [Uint8Array, Uint8Array] => [key, key]),
)

test('encodings sort as keys do, ascending, then newest first', () => {
  fc.assert(
    fc.property(keyPair, ts, ts, ([k1, k2], t1, t2) => {
      const newestFirst = Math.sign(t2 - t1)
      expect(Buffer.compare(encodeKey(CF, k1), encodeKey(CF, k2))).toBe(Buffer.compare(k1, k2))
      expect(Buffer.compare(encodeKeyAt(CF, k1, t1), encodeKeyAt(CF, k2, t2))).toBe(
        Buffer.compare(k1, k2) || newestFirst,
      )
    }),
    { numRuns: 2000 },
  )
})

test('every version of a key lies between its bare encoding and its end, and no other key does', () => {
  fc.assert(
    fc.property(keyPair, ts, ([key, other], at) => {
      const version = encodeKeyAt(CF, key, at)
      const isInside = (encoded: Uint8Array): boolean =>
        Buffer.compare(encoded, encodeKey(CF, key)) >= 0 && Buffer.compare(encoded, encodeKeyEnd(CF, key)) < 0
      expect(isInside(version)).toBe(true)
      expect(isInside(encodeKeyAt(CF, other, at))).toBe(Buffer.compare(key, other) === 0)
    }),
    { numRuns: 1000 },
  )
})

test('no encoding is a prefix of another', () => {
  fc.assert(
    fc.property(keyPair, ([a, b]) => {
      const [one, other] = [encodeKey(CF, a), encodeKey(CF, b)]
      if (Buffer.compare(a, b) !== 0) expect(other.subarray(0, one.length).equals(one)).toBe(false)
    }),
    { numRuns: 1000 },
  )
})

test('keys and timestamps come back as they went in, from any view of memory', () => {
  fc.assert(
    fc.property(bytes, ts, (key, at) => {
      const encoded = encodeKeyAt(CF, key, at)
      const moved = new Uint8Array(encoded.length + 3).subarray(3)
      moved.set(encoded)
      for (const view of [encoded, moved]) {
        expect(Buffer.compare(decodeKey(view), key)).toBe(0)
        expect(decodeKeyTs(view)).toBe(at)
      }
    }),
    { numRuns: 1000 },
  )
})

describe('a stored key that is damaged', () => {
  const cases = [
    { name: 'empty', hex: '' },
    { name: 'a prefix alone', hex: '77' },
    { name: 'cut within the only group', hex: '776b65793100000000' },
    { name: 'ends after a full group', hex: '773132333435363738ff' },
    { name: 'more pad bytes than a group has', hex: '776b65793100000000f6' },
    { name: 'marker 0x00', hex: '776b6579310000000000' },
  ]
  for (const { name, hex } of cases)
    test(name, () => expect(() => decodeKey(Buffer.from(hex, 'hex'))).toThrow(CorruptRecord))

  const tsCases = [
    { name: 'empty', hex: '' },
    { name: 'no room for a timestamp', hex: '776b65793100000000fbffffffffffff' },
    { name: 'a timestamp alone', hex: 'ffffffffffffffff' },
    { name: 'a timestamp above the safe integers', hex: '776b65793100000000fbffdfffffffffffff' },
    { name: 'the largest 64-bit timestamp', hex: '776b65793100000000fb0000000000000000' },
  ]
  for (const { name, hex } of tsCases)
    test(`timestamp: ${name}`, () => expect(() => decodeKeyTs(Buffer.from(hex, 'hex'))).toThrow(CorruptRecord))

  test('cut anywhere: CorruptRecord', () => {
    fc.assert(
      fc.property(bytes, fc.nat(), (key, cut) => {
        const encoded = encodeKey(CF, key)
        expect(() => decodeKey(encoded.subarray(0, cut % encoded.length))).toThrow(CorruptRecord)
      }),
    )
  })

  test('any bytes at all: a key, or CorruptRecord and nothing else', () => {
    fc.assert(
      fc.property(fc.array(byte, { maxLength: 40 }), (list) => {
        for (const decode of [decodeKey, decodeKeyTs]) {
          try {
            decode(Uint8Array.from(list))
          } catch (error) {
            expect(error).toBeInstanceOf(CorruptRecord)
          }
        }
      }),
      { numRuns: 2000 },
    )
  })
})
