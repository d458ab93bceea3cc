import { describe, expect, test } from 'vitest'
import { blocksRead, get } from '../../../src/percolator/actions/get.js'
import type { Lock } from '../../../src/percolator/lock.js'
import type { WriteRecord } from '../../../src/percolator/write.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import {
  asyncAt,
  bytes,
  deleteAt,
  describeWrite,
  KEY,
  lockAt,
  lockRecordAt,
  pessimisticAt,
  putAt,
  rollbackAt,
} from '../builders.js'

describe('locks that block a read', () => {
  const primary = { primary: KEY }
  const cases: { name: string; lock: Lock; ts: number; want: boolean }[] = [
    { name: 'an older lock', lock: lockAt(10), ts: 20, want: true },
    { name: 'a lock of the same timestamp', lock: lockAt(10), ts: 10, want: true },
    { name: 'a younger lock', lock: lockAt(10), ts: 9, want: false },
    { name: 'a delete', lock: lockAt(10, { type: 'delete' }), ts: 20, want: true },
    { name: 'a lock changes nothing', lock: lockAt(10, { type: 'lock' }), ts: 20, want: false },
    { name: 'nor does a pessimistic lock', lock: pessimisticAt(10), ts: 20, want: false },
    { name: 'it commits above the read', lock: lockAt(10, { minCommitTs: 21 }), ts: 20, want: false },
    { name: 'it may commit at the read', lock: lockAt(10, { minCommitTs: 20 }), ts: 20, want: true },
    { name: 'async commit above the read', lock: asyncAt(10, { minCommitTs: 21 }), ts: 20, want: false },
    { name: 'the primary, at a timestamp', lock: lockAt(10, primary), ts: 20, want: true },
    { name: 'the primary, at the latest', lock: lockAt(10, primary), ts: TIMESTAMP_MAX, want: false },
    { name: 'the primary, just below the latest', lock: lockAt(10, primary), ts: TIMESTAMP_MAX - 1, want: true },
    { name: 'a secondary, at the latest', lock: lockAt(10), ts: TIMESTAMP_MAX, want: true },
    {
      name: 'a primary that the key is a prefix of',
      lock: lockAt(10, { primary: bytes('kk') }),
      ts: TIMESTAMP_MAX,
      want: true,
    },
    {
      name: 'the primary under async commit, at the latest',
      lock: asyncAt(10, primary),
      ts: TIMESTAMP_MAX,
      want: true,
    },
    { name: 'a pessimistic lock, at the latest', lock: pessimisticAt(10), ts: TIMESTAMP_MAX, want: false },
  ]
  for (const { name, lock, ts, want } of cases) test(name, () => expect(blocksRead(lock, KEY, ts)).toBe(want))
})

describe('what a history shows', () => {
  const history = [lockRecordAt(28, 30), putAt(22, 25), rollbackAt(21), deleteAt(14, 15), putAt(4, 5)]
  const cases: { name: string; writes?: WriteRecord[]; ts: number; want: string }[] = [
    { name: 'the latest', ts: TIMESTAMP_MAX, want: 'put 22..25' },
    { name: 'a Lock record is passed over', ts: 30, want: 'put 22..25' },
    { name: 'at just the commit', ts: 25, want: 'put 22..25' },
    { name: 'between start and commit', ts: 24, want: 'absent' },
    { name: 'a rollback is passed over', ts: 21, want: 'absent' },
    { name: 'at the delete', ts: 15, want: 'absent' },
    { name: 'below the delete', ts: 14, want: 'put 4..5' },
    { name: 'below everything', ts: 4, want: 'older' },
    { name: 'no record', writes: [], ts: 20, want: 'older' },
    { name: 'records that decide nothing', writes: [lockRecordAt(28, 30), rollbackAt(21)], ts: 40, want: 'older' },
  ]
  for (const { name, writes = history, ts, want } of cases)
    test(`${name}, at ${ts}`, () => {
      const seen = get(writes, ts)
      expect(typeof seen === 'string' ? seen : describeWrite(seen)).toBe(want)
    })
})
