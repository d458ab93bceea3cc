import { describe, expect, test } from 'vitest'
import { cleanup } from '../../../src/percolator/actions/cleanup.js'
import {
  asyncAt,
  bytes,
  failure,
  KEY,
  lockAt,
  lockInfoOf,
  ms,
  mustSucceed,
  overlapped,
  pessimisticAt,
  protectedRollbackAt,
  putAt,
  type RowParts,
  rollbackAt,
  rowOf,
  summary,
} from '../builders.js'

const SHORT = { shortValue: bytes('v') }

describe('cleanup of 10, whose lock has a TTL of 100 ms', () => {
  const cases: { name: string; row: RowParts; currentTs?: number; want: string }[] = [
    { name: 'regardless of age', row: { lock: lockAt(10, SHORT) }, want: '+rollback 10, -lock' },
    { name: 'before the TTL', row: { lock: lockAt(10, SHORT) }, currentTs: ms(99), want: 'key_locked' },
    { name: 'in the last millisecond', row: { lock: lockAt(10, SHORT) }, currentTs: ms(101) - 1, want: 'key_locked' },
    { name: 'after it', row: { lock: lockAt(10, SHORT) }, currentTs: ms(101), want: '+rollback 10, -lock' },
    { name: 'a long value goes along', row: { lock: lockAt(10) }, want: '+rollback 10, -lock, -value 10' },
    { name: 'a pessimistic lock', row: { lock: pessimisticAt(10) }, want: '+rollback 10, -lock' },
    {
      name: 'the primary is protected',
      row: { lock: lockAt(10, { ...SHORT, primary: KEY }) },
      want: '+rollback 10 protected, -lock',
    },
    {
      name: 'nothing is collapsed',
      row: { lock: lockAt(10, SHORT), writes: [rollbackAt(5)] },
      want: '+rollback 10, -lock',
    },
    { name: "another's commit at the start", row: { lock: lockAt(10, SHORT), writes: [putAt(5, 10)] }, want: '-lock' },
    {
      name: "another's commit at the start, on the primary",
      row: { lock: lockAt(10, { ...SHORT, primary: KEY }), writes: [putAt(5, 10)] },
      want: '+put 5..10 overlapped, -lock',
    },
    {
      name: 'rolled back before, but locked',
      row: { lock: lockAt(10, SHORT), writes: [protectedRollbackAt(10)] },
      want: '-lock',
    },
    { name: 'no lock: a protected rollback', row: {}, want: '+rollback 10 protected' },
    { name: 'no lock: nothing is collapsed', row: { writes: [rollbackAt(5)] }, want: '+rollback 10 protected' },
    { name: "no lock, another's commit at the start", row: { writes: [putAt(5, 10)] }, want: '+put 5..10 overlapped' },
    { name: 'a foreign lock stays', row: { lock: lockAt(7) }, currentTs: ms(999), want: '+rollback 10 protected' },
    {
      name: 'an async-commit lock that may commit at 10 remembers it',
      row: { lock: asyncAt(7, { minCommitTs: 10 }) },
      want: '+lock put 7, +rollback 10 protected',
    },
    {
      name: 'one that commits above 10 need not',
      row: { lock: asyncAt(7, { minCommitTs: 11 }) },
      want: '+rollback 10 protected',
    },
    {
      name: 'nor one whose commit at 10 is taken already',
      row: { lock: asyncAt(7, { minCommitTs: 8 }), writes: [putAt(5, 10)] },
      want: '+put 5..10 overlapped',
    },
    { name: 'again', row: { writes: [rollbackAt(10)] }, want: 'no mutations' },
    { name: 'again, by a flag', row: { writes: [overlapped(putAt(5, 10))] }, want: 'no mutations' },
    { name: 'committed', row: { writes: [putAt(10, 20)] }, currentTs: ms(999), want: 'already_committed' },
  ]
  for (const { name, row, currentTs = 0, want } of cases)
    test(name, () => expect(summary(cleanup(rowOf(row), 10, currentTs))).toBe(want))

  test('the fields of each error', () => {
    expect(failure(cleanup(rowOf({ lock: lockAt(10) }), 10, 11))).toEqual({
      code: 'key_locked',
      key: 'k',
      lock: lockInfoOf('k', 10),
    })
    expect(failure(cleanup(rowOf({ writes: [putAt(10, 20)] }), 10, 0))).toEqual({
      code: 'already_committed',
      key: 'k',
      startTs: 10,
      commitTs: 20,
    })
  })

  test('the async-commit lock remembers each rollback beside the earlier ones', () => {
    const { mutations } = mustSucceed(cleanup(rowOf({ lock: asyncAt(7, { rollbackTs: [9] }) }), 10, 0))
    expect(mutations).toContainEqual({ type: 'put-lock', key: KEY, lock: asyncAt(7, { rollbackTs: [9, 10] }) })
  })
})
