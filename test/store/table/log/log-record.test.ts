import fc from 'fast-check'
import { expect, test } from 'vitest'
import { CorruptRecord } from '../../../../src/percolator/codec/key.js'
import { packRecord } from '../../../../src/percolator/codec/record.js'
import {
  type ChunkHead,
  decodeEntry,
  decodeHead,
  encodeEntry,
  encodeHead,
  type LogEntry,
} from '../../../../src/store/table/log/log-record.js'

const number = fc.nat()
const ts = fc.maxSafeNat()
const key = fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes))
const txn = { startTs: ts, commitTs: ts, keys: fc.array(key, { maxLength: 4 }) }

const heads: fc.Arbitrary<ChunkHead> = fc.record({
  state: fc.constantFrom('open', 'full', 'ended'),
  closed: ts,
  highestBefore: ts,
  openFrom: number,
})
const entries: fc.Arbitrary<LogEntry> = fc.record({
  decisions: fc.array(fc.record({ number, primary: key, ...txn })),
  outcomes: fc.array(
    fc.record({ number, isCommitted: fc.boolean(), txn: fc.option(fc.record(txn), { nil: undefined }) }),
  ),
})

test('heads and entries are decoded as they were encoded', () => {
  fc.assert(fc.property(heads, (head) => void expect(decodeHead(encodeHead(head))).toEqual(head)))
  fc.assert(fc.property(entries, (entry) => void expect(decodeEntry(encodeEntry(entry))).toEqual(entry)))
})

test('a damaged record is refused as such', () => {
  const decode = (bytes: Uint8Array): void => {
    for (const decoder of [decodeHead, decodeEntry])
      try {
        decoder(bytes)
      } catch (error) {
        expect(error).toBeInstanceOf(CorruptRecord)
      }
  }
  fc.assert(fc.property(fc.uint8Array(), decode))
  fc.assert(fc.property(fc.array(fc.jsonValue()), (fields) => decode(packRecord(fields))))
  expect(() => decodeHead(packRecord([4, 0, 0, 0]))).toThrow(CorruptRecord)
})
