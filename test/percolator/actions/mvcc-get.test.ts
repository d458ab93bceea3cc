import { expect, test } from 'vitest'
import { mvccGet } from '../../../src/percolator/actions/mvcc-get.js'
import {
  bytes,
  deleteAt,
  lockAt,
  lockInfoOf,
  lockRecordAt,
  overlapped,
  protectedRollbackAt,
  putAt,
  readable,
  rollbackAt,
  rowOf,
} from '../builders.js'

test('an unknown key', () => expect(mvccGet(rowOf(), [])).toEqual({ lock: null, writes: [], values: [] }))

test('everything of a key, newest first, without fields that say nothing', () => {
  const writes = [
    protectedRollbackAt(30),
    lockRecordAt(24, 25),
    overlapped(putAt(20, 22)),
    rollbackAt(15),
    deleteAt(12, 14),
    putAt(5, 6, { shortValue: undefined }),
  ]
  const values = [{ startTs: 5, value: bytes('long') }]
  expect(readable(mvccGet(rowOf({ lock: lockAt(32), writes }), values))).toEqual({
    lock: lockInfoOf('k', 32),
    writes: [
      { type: 'rollback', startTs: 30, commitTs: 30, protected: true },
      { type: 'lock', startTs: 24, commitTs: 25 },
      { type: 'put', startTs: 20, commitTs: 22, shortValue: 'v', overlappedRollback: true },
      { type: 'rollback', startTs: 15, commitTs: 15 },
      { type: 'delete', startTs: 12, commitTs: 14 },
      { type: 'put', startTs: 5, commitTs: 6 },
    ],
    values: [{ startTs: 5, value: 'long' }],
  })
})

test('an empty short value is shown', () =>
  expect(readable(mvccGet(rowOf({ writes: [putAt(5, 6, { shortValue: bytes('') })] }), []).writes)).toEqual([
    { type: 'put', startTs: 5, commitTs: 6, shortValue: '' },
  ]))
