import { describe, expect, test } from 'vitest'
import { commit, commitAll } from '../../../src/percolator/actions/commit.js'
import {
  asyncAt,
  bytes,
  changes,
  deleteAt,
  failure,
  lockAt,
  lockRecordAt,
  mustSucceed,
  overlapped,
  pessimisticAt,
  putAt,
  type RowParts,
  readable,
  rollbackAt,
  rowOf,
  summary,
} from '../builders.js'

const AT = { startTs: 10, commitTs: 20 }

describe('commit of 10 at 20', () => {
  const cases: { name: string; row: RowParts; want: string; answer?: object }[] = [
    { name: 'a put', row: { lock: lockAt(10) }, want: '+put 10..20, -lock' },
    { name: 'a delete', row: { lock: lockAt(10, { type: 'delete' }) }, want: '+delete 10..20, -lock' },
    { name: 'a lock', row: { lock: lockAt(10, { type: 'lock' }) }, want: '+lock 10..20, -lock' },
    { name: 'a pessimistic lock goes without a record', row: { lock: pessimisticAt(10) }, want: '-lock' },
    { name: 'at just the min_commit_ts', row: { lock: lockAt(10, { minCommitTs: 20 }) }, want: '+put 10..20, -lock' },
    { name: 'below the min_commit_ts', row: { lock: lockAt(10, { minCommitTs: 21 }) }, want: 'commit_ts_expired' },
    {
      name: 'a pessimistic lock, below its min_commit_ts',
      row: { lock: pessimisticAt(10, { minCommitTs: 21 }) },
      want: 'commit_ts_expired',
    },
    {
      name: 'another transaction was rolled back at just 20',
      row: { lock: asyncAt(10, { rollbackTs: [15, 20] }) },
      want: '+put 10..20 overlapped, -lock',
    },
    {
      name: 'others were rolled back at other times',
      row: { lock: asyncAt(10, { rollbackTs: [15, 19] }) },
      want: '+put 10..20, -lock',
    },
    {
      name: 'again',
      row: { writes: [putAt(10, 20)] },
      want: 'no mutations',
      answer: { commitTs: 20, released: false },
    },
    {
      name: 'again, at another timestamp: the one on record',
      row: { writes: [deleteAt(10, 18)] },
      want: 'no mutations',
      answer: { commitTs: 18, released: false },
    },
    {
      name: 'again, below newer commits and a foreign lock',
      row: { lock: lockAt(32), writes: [putAt(25, 30), lockRecordAt(10, 20), rollbackAt(15)] },
      want: 'no mutations',
      answer: { commitTs: 20, released: false },
    },
    { name: 'never prewritten', row: {}, want: 'txn_lock_not_found' },
    { name: 'rolled back', row: { writes: [rollbackAt(10)] }, want: 'txn_lock_not_found' },
    {
      name: 'rolled back, a flag on the commit at its start',
      row: { writes: [overlapped(putAt(5, 10))] },
      want: 'txn_lock_not_found',
    },
    { name: 'another commit at its start', row: { writes: [putAt(5, 10)] }, want: 'txn_lock_not_found' },
    { name: 'a foreign lock', row: { lock: lockAt(7) }, want: 'txn_lock_not_found' },
  ]
  for (const { name, row, want, answer } of cases)
    test(name, () => {
      const outcome = commit(rowOf(row), AT)
      expect(summary(outcome)).toBe(want)
      if (outcome.ok) expect(outcome.value).toEqual(answer ?? { commitTs: 20, released: true })
    })

  test('the short value moves from the lock to the record', () => {
    const { mutations } = mustSucceed(commit(rowOf({ lock: lockAt(10, { shortValue: bytes('new') }) }), AT))
    expect(readable(mutations)).toEqual([
      {
        type: 'put-write',
        key: 'k',
        write: readable({ ...putAt(10, 20), shortValue: bytes('new') }),
      },
      { type: 'delete-lock', key: 'k' },
    ])
  })

  test('the fields of each error', () => {
    expect(failure(commit(rowOf(), AT))).toEqual({ code: 'txn_lock_not_found', key: 'k', startTs: 10, commitTs: 20 })
    expect(failure(commit(rowOf({ lock: lockAt(10, { minCommitTs: 21 }) }), AT))).toEqual({
      code: 'commit_ts_expired',
      key: 'k',
      startTs: 10,
      attemptedCommitTs: 20,
      minCommitTs: 21,
    })
  })
})

describe('commitAll of 10 at 20', () => {
  const [a, b, c] = [bytes('a'), bytes('b'), bytes('c')]
  const locked = (key: Uint8Array, minCommitTs = 0) => rowOf({ key, lock: lockAt(10, { minCommitTs }) })
  const cases = [
    {
      name: 'all locked',
      rows: [locked(a), locked(b)],
      want: 'a: +put 10..20, a: -lock, b: +put 10..20, b: -lock',
      commitTs: 20,
    },
    {
      name: 'one committed before, at the same timestamp',
      rows: [rowOf({ key: a, writes: [putAt(10, 20)] }), locked(b)],
      want: 'b: +put 10..20, b: -lock',
      commitTs: 20,
    },
    {
      name: 'one committed before at another timestamp: the rest follows it',
      rows: [locked(a), rowOf({ key: b, writes: [putAt(10, 18)] }), locked(c)],
      want: 'a: +put 10..18, a: -lock, c: +put 10..18, c: -lock',
      commitTs: 18,
    },
    {
      name: 'all committed before',
      rows: [rowOf({ key: a, writes: [putAt(10, 18)] })],
      want: 'no mutations',
      commitTs: 18,
    },
    {
      name: 'one rolled back: nothing is written',
      rows: [locked(a), rowOf({ key: b, writes: [rollbackAt(10)] })],
      want: 'txn_lock_not_found',
    },
    { name: 'one raised by a reader: nothing is written', rows: [locked(a), locked(b, 21)], want: 'commit_ts_expired' },
  ]
  for (const { name, rows, want, commitTs } of cases)
    test(name, () => {
      const outcome = commitAll(rows, AT)
      expect(summary(outcome)).toBe(want)
      if (outcome.ok) expect(outcome.value).toEqual({ commitTs })
    })

  test('no mutation twice', () => {
    const { mutations } = mustSucceed(commitAll([locked(a), locked(b)], AT))
    expect(mutations).toHaveLength(4)
    expect(changes(mutations.slice(0, 2))).toBe('a: +put 10..20, a: -lock')
  })
})
