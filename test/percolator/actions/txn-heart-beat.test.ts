import { describe, expect, test } from 'vitest'
import { txnHeartBeat } from '../../../src/percolator/actions/txn-heart-beat.js'
import type { Lock } from '../../../src/percolator/lock.js'
import {
  asyncAt,
  failure,
  KEY,
  lockAt,
  mustSucceed,
  pessimisticAt,
  type RowParts,
  rollbackAt,
  rowOf,
} from '../builders.js'

const beat = (row: RowParts, adviseLockTtl: number, minCommitTs?: number) =>
  txnHeartBeat(rowOf(row), { primary: KEY, startTs: 10, adviseLockTtl, minCommitTs })

describe('txn_heart_beat of 10, whose lock has a TTL of 100 ms', () => {
  const cases: {
    name: string
    lock: Lock
    ttl: number
    minCommitTs?: number
    lockTtl: number
    want: Partial<Lock> | undefined
  }[] = [
    { name: 'raised', lock: lockAt(10), ttl: 200, lockTtl: 200, want: { ttlMs: 200 } },
    { name: 'the same', lock: lockAt(10), ttl: 100, lockTtl: 100, want: undefined },
    { name: 'never lowered', lock: lockAt(10), ttl: 50, lockTtl: 100, want: undefined },
    { name: 'a pessimistic lock', lock: pessimisticAt(10), ttl: 200, lockTtl: 200, want: { ttlMs: 200 } },
    { name: 'an async-commit lock', lock: asyncAt(10), ttl: 200, lockTtl: 200, want: { ttlMs: 200 } },
    {
      name: 'min_commit_ts raised alone',
      lock: lockAt(10, { minCommitTs: 15 }),
      ttl: 50,
      minCommitTs: 16,
      lockTtl: 100,
      want: { minCommitTs: 16 },
    },
    {
      name: 'min_commit_ts raised from none',
      lock: lockAt(10),
      ttl: 200,
      minCommitTs: 16,
      lockTtl: 200,
      want: { ttlMs: 200, minCommitTs: 16 },
    },
    {
      name: 'min_commit_ts never lowered',
      lock: lockAt(10, { minCommitTs: 15 }),
      ttl: 50,
      minCommitTs: 14,
      lockTtl: 100,
      want: undefined,
    },
    {
      name: 'min_commit_ts 0 is not given',
      lock: lockAt(10, { minCommitTs: 15 }),
      ttl: 50,
      minCommitTs: 0,
      lockTtl: 100,
      want: undefined,
    },
    {
      name: 'min_commit_ts of an async-commit lock is left alone',
      lock: asyncAt(10),
      ttl: 50,
      minCommitTs: 99,
      lockTtl: 100,
      want: undefined,
    },
    {
      name: 'TTL alone, under async commit',
      lock: asyncAt(10),
      ttl: 200,
      minCommitTs: 99,
      lockTtl: 200,
      want: { ttlMs: 200 },
    },
  ]
  for (const { name, lock, ttl, minCommitTs, lockTtl, want } of cases)
    test(name, () => {
      const { value, mutations } = mustSucceed(beat({ lock }, ttl, minCommitTs))
      expect(value).toEqual({ lockTtl })
      expect(mutations).toEqual(want === undefined ? [] : [{ type: 'put-lock', key: KEY, lock: { ...lock, ...want } }])
    })

  const refusals: { name: string; row: RowParts }[] = [
    { name: 'no lock', row: {} },
    { name: 'a foreign lock', row: { lock: lockAt(7) } },
    { name: 'rolled back', row: { writes: [rollbackAt(10)] } },
  ]
  for (const { name, row } of refusals)
    test(name, () => expect(failure(beat(row, 200))).toEqual({ code: 'txn_not_found', startTs: 10, primary: 'k' }))
})
