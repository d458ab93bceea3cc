import fc from 'fast-check'
import { Packr } from 'msgpackr'
import { describe, expect, test } from 'vitest'
import { type Ack, type Failure, MARK_KINDS, type StoredNotification } from '../../../src/observers/rules/cell.js'
import {
  decodeAck,
  decodeFailure,
  decodeNotification,
  encodeAck,
  encodeFailure,
  encodeNotification,
} from '../../../src/observers/rules/codec/cell.js'
import { CorruptRecord } from '../../../src/percolator/codec/key.js'
import { decodeLock, encodeLock } from '../../../src/percolator/codec/lock.js'
import { packRecord, unpackRecord } from '../../../src/percolator/codec/record.js'
import { decodeWrite, encodeWrite } from '../../../src/percolator/codec/write.js'
import type { Lock } from '../../../src/percolator/lock.js'
import type { WriteRecord } from '../../../src/percolator/write.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { asyncAt, bytes, lockAt, overlapped, protectedRollbackAt, putAt, readable, rollbackAt } from '../builders.js'

const someBytes = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.constantFrom(31, 32, 255, 256, 65_535, 65_536).map((length) => new Uint8Array(length).fill(0xc1)),
)
/** Every width that MessagePack has for a number. */
const ts = fc.oneof(
  fc.constantFrom(0, 1, 63, 64, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 2, TIMESTAMP_MAX),
  fc.integer({ min: 0, max: TIMESTAMP_MAX }),
)
const lock: fc.Arbitrary<Lock> = fc.record({
  type: fc.constantFrom('put', 'delete', 'lock', 'pessimistic'),
  primary: someBytes,
  startTs: ts,
  ttlMs: ts,
  shortValue: fc.option(someBytes, { nil: undefined }),
  expireTs: ts,
  leaseFence: ts,
  forUpdateTs: ts,
  txnSize: ts,
  minCommitTs: ts,
  useAsyncCommit: fc.boolean(),
  secondaries: fc.array(someBytes, { maxLength: 20 }),
  rollbackTs: fc.array(ts, { maxLength: 20 }),
})
const write: fc.Arbitrary<WriteRecord> = fc.record({
  type: fc.constantFrom('put', 'delete', 'rollback', 'lock'),
  startTs: ts,
  commitTs: ts,
  shortValue: fc.option(someBytes, { nil: undefined }),
  expireTs: ts,
  leaseFence: ts,
  isProtected: fc.boolean(),
  hasOverlappedRollback: fc.boolean(),
})

const entry: fc.Arbitrary<StoredNotification> = fc.record({
  changeTs: ts,
  kind: fc.constantFrom(...MARK_KINDS),
  depth: ts,
})
const ack: fc.Arbitrary<Ack> = fc.record({ ackTs: ts, commitTs: ts, startTs: ts })
const failed: fc.Arbitrary<Failure> = fc
  .record({ attempts: ts, notBeforeMs: ts, error: fc.string({ unit: 'binary' }), parkedTs: ts })
  .chain((failure) => entry.map((change) => ({ ...failure, ...change })))

test('a lock comes back as it went in', () => {
  fc.assert(
    fc.property(lock, (original) => {
      expect(readable(decodeLock(encodeLock(original)))).toEqual(readable(original))
    }),
    { numRuns: 300 },
  )
})

test('a write comes back as it went in, with the commitTs of its key', () => {
  fc.assert(
    fc.property(write, (original) => {
      expect(readable(decodeWrite(encodeWrite(original), original.commitTs))).toEqual(readable(original))
    }),
    { numRuns: 300 },
  )
})

test('the records of a cell come back as they went in', () => {
  fc.assert(
    fc.property(entry, ack, failed, (entry, ack, failure) => {
      expect(decodeNotification(encodeNotification(entry))).toEqual(entry)
      expect(decodeAck(encodeAck(ack))).toEqual(ack)
      expect(decodeFailure(encodeFailure(failure))).toEqual(failure)
    }),
    { numRuns: 300 },
  )
})

test('an empty short value is a value, not an absent one', () => {
  expect(decodeLock(encodeLock(lockAt(5, { shortValue: bytes('') }))).shortValue).toHaveLength(0)
  expect(decodeLock(encodeLock(lockAt(5))).shortValue).toBeUndefined()
  expect(decodeWrite(encodeWrite(putAt(5, 6, { shortValue: bytes('') })), 6).shortValue).toHaveLength(0)
  expect(decodeWrite(encodeWrite(putAt(5, 6, { shortValue: undefined })), 6).shortValue).toBeUndefined()
})

// The bytes are a format on disk: a change here needs a new format version.
const vectors = [
  { name: 'put with a short value', bytes: encodeWrite(putAt(5, 6)), hex: '940005c4017600' },
  { name: 'put with an overlapped rollback', bytes: encodeWrite(overlapped(putAt(5, 6))), hex: '940005c4017602' },
  { name: 'rollback', bytes: encodeWrite(rollbackAt(5)), hex: '940205c000' },
  { name: 'protected rollback', bytes: encodeWrite(protectedRollbackAt(5)), hex: '940205c001' },
  { name: 'lock', bytes: encodeLock(lockAt(5)), hex: '9b00c401700564c00000000090' + '90' },
  { name: 'entry', bytes: encodeNotification({ changeTs: 5, kind: 'notified', depth: 1 }), hex: '93050201' },
  { name: 'acknowledgement', bytes: encodeAck({ ackTs: 5, commitTs: 6, startTs: 5 }), hex: '93050605' },
  {
    name: 'failed run',
    bytes: encodeFailure({ attempts: 2, notBeforeMs: 3, error: 'no', parkedTs: 9, changeTs: 5, kind: 'put', depth: 0 }),
    hex: '970203a26e6f09050000',
  },
  {
    name: 'async-commit lock',
    bytes: encodeLock(asyncAt(5, { secondaries: [bytes('s')], rollbackTs: [9] })),
    hex: '9b00c401700564c40176000006' + '0191c401739109',
  },
]
for (const { name, bytes: encoded, hex } of vectors)
  test(`the stored bytes of a ${name}`, () => expect(encoded.toString('hex')).toBe(hex))

describe('a damaged record', () => {
  const good: readonly unknown[] = [0, bytes('p'), 5, 100, null, 0, 0, 0, 0, [], []]
  const withField = (at: number, field: unknown): Buffer => packRecord(good.with(at, field))
  const cases: { name: string; bytes: Uint8Array }[] = [
    { name: 'empty', bytes: Buffer.alloc(0) },
    { name: 'no array', bytes: Buffer.of(5) },
    { name: 'a field too few', bytes: packRecord(good.slice(0, 10)) },
    { name: 'bytes after the array', bytes: Buffer.concat([packRecord(good), Buffer.of(0)]) },
    { name: 'an unused MessagePack byte', bytes: Buffer.of(0xc1) },
    { name: 'an unknown type', bytes: withField(0, 4) },
    { name: 'a negative type', bytes: withField(0, -1) },
    { name: 'a type by name', bytes: withField(0, 'put') },
    { name: 'a primary that is text', bytes: withField(1, 'p') },
    { name: 'a negative timestamp', bytes: withField(2, -5) },
    { name: 'a fractional timestamp', bytes: withField(2, 5.5) },
    { name: 'a timestamp above the safe integers', bytes: withField(2, 2n ** 60n) },
    { name: 'a timestamp that is no number', bytes: withField(2, '5') },
    { name: 'a TTL that is nil', bytes: withField(3, null) },
    { name: 'a short value that is a number', bytes: withField(4, 7) },
    { name: 'secondaries that are nil', bytes: withField(9, null) },
    { name: 'a secondary that is a number', bytes: withField(9, [7]) },
    { name: 'a rollback timestamp that is text', bytes: withField(10, ['9']) },
  ]
  for (const { name, bytes: damaged } of cases)
    test(`lock: ${name}`, () => expect(() => decodeLock(damaged)).toThrow(CorruptRecord))

  const writeCases: { name: string; bytes: Uint8Array }[] = [
    { name: 'a field too few', bytes: packRecord([0, 5, null]) },
    { name: 'an unknown type', bytes: packRecord([4, 5, null, 0]) },
    { name: 'a bad start', bytes: packRecord([0, null, null, 0]) },
    { name: 'a bad short value', bytes: packRecord([0, 5, 'v', 0]) },
    { name: 'bad flags', bytes: packRecord([0, 5, null, true]) },
    { name: 'a MessagePack map', bytes: new Packr({ useRecords: false }).pack({ type: 0 }) },
  ]
  for (const { name, bytes: damaged } of writeCases)
    test(`write: ${name}`, () => expect(() => decodeWrite(damaged, 6)).toThrow(CorruptRecord))

  const cellCases: { name: string; decode: (bytes: Uint8Array) => unknown; bytes: Uint8Array }[] = [
    { name: 'entry: a field too few', decode: decodeNotification, bytes: packRecord([5, 0]) },
    { name: 'entry: an unknown kind', decode: decodeNotification, bytes: packRecord([5, MARK_KINDS.length, 0]) },
    { name: 'entry: a bad depth', decode: decodeNotification, bytes: packRecord([5, 0, -1]) },
    { name: 'acknowledgement: a field too few', decode: decodeAck, bytes: packRecord([5, 6]) },
    { name: 'acknowledgement: a bad timestamp', decode: decodeAck, bytes: packRecord([5, '6', 5]) },
    { name: 'failed run: a field too few', decode: decodeFailure, bytes: packRecord([2, 3, 'no', 9, 5, 0]) },
    { name: 'failed run: a bad error', decode: decodeFailure, bytes: packRecord([2, 3, 4, 9, 5, 0, 0]) },
  ]
  for (const { name, decode, bytes: damaged } of cellCases)
    test(name, () => expect(() => decode(damaged)).toThrow(CorruptRecord))

  // Lengths that a few bytes can't hold must not be believed, nor be allocated.
  for (const hex of ['ddffffffff', 'dd00ffffff', 'dfffffffff', 'c6ffffffff', 'dbffffffff', 'c9ffffffff00', 'dcffff00'])
    test(`a length beyond the record: ${hex}`, () => {
      expect(() => unpackRecord(Buffer.from(hex, 'hex'), 'write', 4)).toThrow(CorruptRecord)
    })

  test('arrays nested without end', () => {
    expect(() => unpackRecord(Buffer.alloc(100_000, 0x91), 'write', 1)).toThrow(CorruptRecord)
  })

  test('cut anywhere: CorruptRecord', () => {
    fc.assert(
      fc.property(lock, write, fc.nat(), (someLock, someWrite, cut) => {
        const [lockBytes, writeBytes] = [encodeLock(someLock), encodeWrite(someWrite)]
        expect(() => decodeLock(lockBytes.subarray(0, cut % lockBytes.length))).toThrow(CorruptRecord)
        expect(() => decodeWrite(writeBytes.subarray(0, cut % writeBytes.length), 6)).toThrow(CorruptRecord)
      }),
      { numRuns: 200 },
    )
  })

  /** MessagePack headers more often than by chance, those of extensions among them. */
  const token = fc.oneof(fc.constantFrom(0x91, 0x94, 0x9b, 0xc4, 0xc7, 0xd4, 0xd5, 0xd6, 0x72, 0x40), fc.nat(255))

  test('any bytes at all: a record, or CorruptRecord and nothing else; and the next record decodes as ever', {
    tags: ['long'],
  }, () => {
    const next = putAt(70, 80)
    fc.assert(
      fc.property(fc.array(token, { maxLength: 30 }), (list) => {
        for (const decode of [decodeLock, (damaged: Uint8Array) => decodeWrite(damaged, 6)]) {
          try {
            decode(Uint8Array.from(list))
          } catch (error) {
            expect(error).toBeInstanceOf(CorruptRecord)
          }
        }
        expect(readable(decodeWrite(encodeWrite(next), 80))).toEqual(readable(next))
      }),
      { numRuns: 2000 },
    )
  })

  test('one byte changed: a record, or CorruptRecord and nothing else', { tags: ['long'] }, () => {
    fc.assert(
      fc.property(lock, fc.nat(), fc.nat(255), (original, at, value) => {
        const damaged = Buffer.from(encodeLock(original))
        damaged[at % Math.min(damaged.length, 64)] = value
        try {
          decodeLock(damaged)
        } catch (error) {
          expect(error).toBeInstanceOf(CorruptRecord)
        }
      }),
      { numRuns: 500 },
    )
  })
})
