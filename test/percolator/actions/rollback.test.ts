import { describe, expect, test } from 'vitest'
import { rollback } from '../../../src/percolator/actions/rollback.js'
import {
  asyncAt,
  bytes,
  deleteAt,
  failure,
  KEY,
  lockAt,
  lockRecordAt,
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

function table(
  title: string,
  isReleased: boolean,
  cases: readonly { name: string; row: RowParts; want: string }[],
): void {
  describe(title, () => {
    for (const { name, row, want } of cases)
      test(name, () => {
        const outcome = rollback(rowOf(row), 10)
        expect(summary(outcome)).toBe(want)
        if (outcome.ok) expect(outcome.value).toEqual({ released: isReleased })
      })
  })
}

table('rollback of 10, its lock is there', true, [
  { name: 'a short put', row: { lock: lockAt(10, SHORT) }, want: '+rollback 10, -lock' },
  { name: 'a long put takes its value along', row: { lock: lockAt(10) }, want: '+rollback 10, -lock, -value 10' },
  { name: 'a delete', row: { lock: lockAt(10, { type: 'delete' }) }, want: '+rollback 10, -lock' },
  { name: 'a lock', row: { lock: lockAt(10, { type: 'lock' }) }, want: '+rollback 10, -lock' },
  { name: 'a pessimistic lock', row: { lock: pessimisticAt(10) }, want: '+rollback 10, -lock' },
  {
    name: 'the primary is protected',
    row: { lock: lockAt(10, { ...SHORT, primary: KEY }) },
    want: '+rollback 10 protected, -lock',
  },
  {
    name: 'the rollback before it is collapsed',
    row: { lock: lockAt(10, SHORT), writes: [rollbackAt(5)] },
    want: '+rollback 10, -lock, -write 5',
  },
  {
    name: 'the primary collapses it too',
    row: { lock: lockAt(10, { ...SHORT, primary: KEY }), writes: [rollbackAt(5)] },
    want: '+rollback 10 protected, -lock, -write 5',
  },
  {
    name: 'a protected one stays',
    row: { lock: lockAt(10, SHORT), writes: [protectedRollbackAt(5)] },
    want: '+rollback 10, -lock',
  },
  {
    name: 'one below a put stays',
    row: { lock: lockAt(10, SHORT), writes: [putAt(6, 7), rollbackAt(5)] },
    want: '+rollback 10, -lock',
  },
  {
    name: 'newer records are passed over',
    row: { lock: lockAt(10, SHORT), writes: [rollbackAt(12), rollbackAt(5)] },
    want: '+rollback 10, -lock, -write 5',
  },
  {
    name: "another's commit at the start is left as it is",
    row: { lock: lockAt(10, SHORT), writes: [putAt(5, 10)] },
    want: '-lock',
  },
  {
    name: 'or takes the flag, on the primary',
    row: { lock: lockAt(10, { ...SHORT, primary: KEY }), writes: [putAt(5, 10)] },
    want: '+put 5..10 overlapped, -lock',
  },
  {
    name: 'rolled back before',
    row: { lock: lockAt(10, SHORT), writes: [rollbackAt(10), rollbackAt(5)] },
    want: '-lock',
  },
  {
    name: 'rolled back before, by a flag',
    row: { lock: lockAt(10, SHORT), writes: [overlapped(putAt(5, 10))] },
    want: '-lock',
  },
])

table('rollback of 10, its lock is missing', false, [
  { name: 'a row that never was', row: {}, want: '+rollback 10' },
  { name: 'the rollback before it is collapsed', row: { writes: [rollbackAt(5)] }, want: '+rollback 10, -write 5' },
  { name: 'a protected one stays', row: { writes: [protectedRollbackAt(5)] }, want: '+rollback 10' },
  { name: 'a commit stays', row: { writes: [putAt(5, 6)] }, want: '+rollback 10' },
  { name: 'a newer commit', row: { writes: [putAt(12, 13)] }, want: '+rollback 10' },
  { name: "another's commit at the start is left as it is", row: { writes: [putAt(5, 10)] }, want: 'no mutations' },
  { name: 'again', row: { writes: [rollbackAt(10)] }, want: 'no mutations' },
  { name: 'again, by a flag', row: { writes: [overlapped(deleteAt(5, 10))] }, want: 'no mutations' },
  { name: 'a foreign lock stays', row: { lock: lockAt(7) }, want: '+rollback 10' },
  { name: 'an async-commit lock need not remember it', row: { lock: asyncAt(7) }, want: '+rollback 10' },
  { name: 'committed', row: { writes: [putAt(10, 20)] }, want: 'already_committed' },
  { name: 'committed, a Lock record', row: { writes: [lockRecordAt(10, 20)] }, want: 'already_committed' },
  {
    name: 'committed, below a newer commit',
    row: { writes: [putAt(25, 30), putAt(10, 20)] },
    want: 'already_committed',
  },
])

test('already_committed carries the commit', () =>
  expect(failure(rollback(rowOf({ writes: [putAt(10, 20)] }), 10))).toEqual({
    code: 'already_committed',
    key: 'k',
    startTs: 10,
    commitTs: 20,
  }))

test('a key both locked and committed by one transaction is a defect', () =>
  expect(() => rollback(rowOf({ lock: lockAt(10), writes: [putAt(10, 20)] }), 10)).toThrow('both a lock and a commit'))
