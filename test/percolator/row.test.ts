import { describe, expect, test } from 'vitest'
import { isExpired } from '../../src/percolator/lock.js'
import { endsHistory, type HistoryDepth, txnRecord } from '../../src/percolator/row.js'
import type { WriteRecord } from '../../src/percolator/write.js'
import { deleteAt, describeWrite, lockAt, lockRecordAt, ms, overlapped, putAt, rollbackAt } from './builders.js'

describe('what a history says of the transaction at 10', () => {
  const cases: { name: string; writes: WriteRecord[]; want: string }[] = [
    { name: 'nothing', writes: [], want: 'none' },
    { name: 'its commit', writes: [putAt(10, 20)], want: 'record put 10..20' },
    { name: 'its commit below a newer one', writes: [putAt(25, 30), putAt(10, 20)], want: 'record put 10..20' },
    {
      name: 'its commit above that of a younger one',
      writes: [putAt(10, 20), putAt(12, 15)],
      want: 'record put 10..20',
    },
    { name: 'its rollback', writes: [rollbackAt(10)], want: 'record rollback 10' },
    { name: 'its rollback as a flag', writes: [overlapped(putAt(5, 10))], want: 'overlapped-rollback' },
    { name: "another's commit at its start", writes: [putAt(5, 10)], want: 'none put 5..10' },
    {
      name: 'its commit above a flag for it',
      writes: [putAt(10, 20), overlapped(putAt(5, 10))],
      want: 'record put 10..20',
    },
    { name: 'a flag for another', writes: [overlapped(putAt(5, 9))], want: 'none' },
  ]
  for (const { name, writes, want } of cases)
    test(name, () => {
      const record = txnRecord(writes, 10)
      const write = record.kind === 'record' ? record.write : record.kind === 'none' ? record.overlapped : undefined
      expect(`${record.kind}${write === undefined ? '' : ` ${describeWrite(write)}`}`).toBe(want)
    })
})

describe('where a history for the transaction at 10 may end', () => {
  const cases: { write: WriteRecord; depths: HistoryDepth[] }[] = [
    { write: putAt(12, 15), depths: [] },
    { write: putAt(5, 10), depths: [] },
    { write: putAt(5, 9), depths: ['txn', 'data'] },
    { write: deleteAt(5, 9), depths: ['txn', 'data'] },
    { write: lockRecordAt(5, 9), depths: ['txn'] },
    { write: rollbackAt(9), depths: ['txn'] },
  ]
  for (const { write, depths } of cases)
    test(`${describeWrite(write)}: ${depths.join(', ') || 'nowhere'}`, () => {
      const all: HistoryDepth[] = ['txn', 'data', 'all']
      expect(all.filter((depth) => endsHistory(write, 10, depth))).toEqual(depths)
    })
})

describe('a lock at 10 with a TTL of 100 ms', () => {
  const cases = [
    { name: 'at its start', currentTs: 10, want: false },
    { name: 'in the last millisecond', currentTs: ms(101) - 1, want: false },
    { name: 'in the first one after', currentTs: ms(101), want: true },
  ]
  for (const { name, currentTs, want } of cases)
    test(`expired ${name}: ${want}`, () => expect(isExpired(lockAt(10), currentTs)).toBe(want))
})
