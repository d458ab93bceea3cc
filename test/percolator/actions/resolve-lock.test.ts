import { describe, expect, test } from 'vitest'
import { resolveLock } from '../../../src/percolator/actions/resolve-lock.js'
import { bytes, KEY, lockAt, pessimisticAt, putAt, type RowParts, rollbackAt, rowOf, summary } from '../builders.js'

const short = lockAt(10, { shortValue: bytes('v') })

interface Case {
  readonly name: string
  readonly row: RowParts
  readonly commitTs: number
  readonly want: string
  readonly released?: boolean
}

function table(title: string, keyIsNamed: boolean, cases: readonly Case[]): void {
  describe(title, () => {
    for (const { name, row, commitTs, want, released = false } of cases)
      test(name, () => {
        const outcome = resolveLock(rowOf(row), 10, commitTs, keyIsNamed)
        expect(summary(outcome)).toBe(want)
        if (outcome.ok) expect(outcome.value).toEqual({ released })
      })
  })
}

const LOCKED: readonly Case[] = [
  { name: 'rolled back', row: { lock: short }, commitTs: 0, want: '+rollback 10, -lock', released: true },
  {
    name: 'rolled back, the primary',
    row: { lock: { ...short, primary: KEY } },
    commitTs: 0,
    want: '+rollback 10 protected, -lock',
    released: true,
  },
  {
    name: 'rolled back, with a long value',
    row: { lock: lockAt(10) },
    commitTs: 0,
    want: '+rollback 10, -lock, -value 10',
    released: true,
  },
  { name: 'committed', row: { lock: short }, commitTs: 20, want: '+put 10..20, -lock', released: true },
  {
    name: 'committed, a pessimistic lock was left',
    row: { lock: pessimisticAt(10) },
    commitTs: 20,
    want: '-lock',
    released: true,
  },
  {
    name: 'committed below min_commit_ts',
    row: { lock: { ...short, minCommitTs: 21 } },
    commitTs: 20,
    want: 'commit_ts_expired',
  },
]

table('resolve_lock of 10, the key is named', true, [
  ...LOCKED,
  { name: 'rolled back, no lock', row: {}, commitTs: 0, want: '+rollback 10' },
  { name: 'rolled back already', row: { writes: [rollbackAt(10)] }, commitTs: 0, want: 'no mutations' },
  { name: 'rolled back, but it committed', row: { writes: [putAt(10, 20)] }, commitTs: 0, want: 'already_committed' },
  { name: 'committed already', row: { writes: [putAt(10, 20)] }, commitTs: 20, want: 'no mutations' },
  { name: 'committed, no lock', row: {}, commitTs: 20, want: 'txn_lock_not_found' },
  {
    name: 'committed, but it rolled back',
    row: { writes: [rollbackAt(10)] },
    commitTs: 20,
    want: 'txn_lock_not_found',
  },
])

table('resolve_lock of 10, its lock was found', false, [
  ...LOCKED,
  { name: 'rolled back, resolved meanwhile', row: {}, commitTs: 0, want: 'no mutations' },
  { name: 'committed, resolved meanwhile', row: {}, commitTs: 20, want: 'no mutations' },
  { name: 'resolved meanwhile, and locked by another', row: { lock: lockAt(12) }, commitTs: 0, want: 'no mutations' },
])
