import { describe, expect, test } from 'vitest'
import { checkSecondaryLock } from '../../../src/percolator/actions/check-secondary-locks.js'
import {
  asyncAt,
  changes,
  lockAt,
  lockInfoOf,
  mustSucceed,
  overlapped,
  pessimisticAt,
  protectedRollbackAt,
  putAt,
  type RowParts,
  readable,
  rollbackAt,
  rowOf,
} from '../builders.js'

const ROLLED_BACK = { kind: 'rolled_back' }

describe('check_secondary_locks of 10, one key', () => {
  const cases: { name: string; row: RowParts; answer: object; want?: string }[] = [
    {
      name: 'locked',
      row: { lock: asyncAt(10) },
      answer: { kind: 'locked', lock: lockInfoOf('k', 10, { useAsyncCommit: true, minCommitTs: 11 }) },
    },
    {
      name: 'locked without async commit',
      row: { lock: lockAt(10) },
      answer: { kind: 'locked', lock: lockInfoOf('k', 10) },
    },
    { name: 'committed', row: { writes: [putAt(10, 20)] }, answer: { kind: 'committed', commitTs: 20 } },
    {
      name: 'committed, locked since by another',
      row: { lock: asyncAt(25), writes: [putAt(10, 20)] },
      answer: { kind: 'committed', commitTs: 20 },
    },
    { name: 'rolled back', row: { writes: [rollbackAt(10)] }, answer: ROLLED_BACK },
    {
      name: 'rolled back, a flag on the commit at its start',
      row: { writes: [overlapped(putAt(5, 10))] },
      answer: ROLLED_BACK,
    },
    { name: 'missing', row: {}, answer: ROLLED_BACK, want: '+rollback 10 protected' },
    {
      name: 'missing, the rollback before is collapsed',
      row: { writes: [rollbackAt(5)] },
      answer: ROLLED_BACK,
      want: '+rollback 10 protected, -write 5',
    },
    {
      name: 'missing, a protected one stays',
      row: { writes: [protectedRollbackAt(5)] },
      answer: ROLLED_BACK,
      want: '+rollback 10 protected',
    },
    {
      name: "missing, another's commit at the start",
      row: { writes: [putAt(5, 10)] },
      answer: ROLLED_BACK,
      want: '+put 5..10 overlapped',
    },
    { name: 'missing, a foreign lock', row: { lock: lockAt(7) }, answer: ROLLED_BACK, want: '+rollback 10 protected' },
    {
      name: 'missing, an async-commit lock that may commit at 10',
      row: { lock: asyncAt(7) },
      answer: ROLLED_BACK,
      want: '+lock put 7, +rollback 10 protected',
    },
    {
      name: 'missing, one that commits above 10',
      row: { lock: asyncAt(7, { minCommitTs: 11 }) },
      answer: ROLLED_BACK,
      want: '+rollback 10 protected',
    },
    {
      name: 'a pessimistic lock',
      row: { lock: pessimisticAt(10) },
      answer: ROLLED_BACK,
      want: '+rollback 10 protected, -lock',
    },
    {
      name: 'a pessimistic lock left after the commit',
      row: { lock: pessimisticAt(10), writes: [putAt(10, 20)] },
      answer: { kind: 'committed', commitTs: 20 },
      want: '-lock',
    },
    {
      name: 'a pessimistic lock left after the rollback',
      row: { lock: pessimisticAt(10), writes: [rollbackAt(10)] },
      answer: ROLLED_BACK,
      want: '-lock',
    },
  ]
  for (const { name, row, answer, want = 'no mutations' } of cases)
    test(name, () => {
      const { value, mutations } = mustSucceed(checkSecondaryLock(rowOf(row), 10))
      expect(readable(value)).toEqual(answer)
      expect(changes(mutations)).toBe(want)
    })
})
