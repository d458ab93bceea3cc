import { describe, expect, test } from 'vitest'
import { KvError } from '../../../src/errors/kv-error.js'
import { prewrite, prewriteDepth } from '../../../src/percolator/actions/prewrite.js'
import type { PrewriteMutation, PrewriteRequest } from '../../../src/percolator/api.js'
import type { Lock } from '../../../src/percolator/lock.js'
import type { Mutation, RowView } from '../../../src/percolator/row.js'
import {
  applyTo,
  asyncAt,
  bytes,
  changes,
  deleteAt,
  failure,
  KEY,
  lockAt,
  lockInfoOf,
  lockRecordAt,
  mustSucceed,
  overlapped,
  PRIMARY,
  pessimisticAt,
  protectedRollbackAt,
  putAt,
  type RowParts,
  readable,
  rollbackAt,
  rowOf,
  summary,
} from '../builders.js'

const CONTEXT = { maxTs: 50, shortValueBytesMax: 255 }

type Op = PrewriteMutation['op']
type MutationParts = Partial<PrewriteMutation>
type RequestParts = Partial<PrewriteRequest>

function mutationOf(op: Op, more: MutationParts = {}): PrewriteMutation {
  return { op, key: KEY, ...(op === 'put' || op === 'insert' ? { value: bytes('v') } : {}), ...more }
}

function requestAt(startTs: number, mutations: readonly PrewriteMutation[], more: RequestParts = {}): PrewriteRequest {
  return { mutations, primary: PRIMARY, startTs, lockTtl: 3000, ...more }
}

/** The outcome for one key, by a transaction that started at 10. */
function prewriteOne(row: RowParts, mutation: PrewriteMutation = mutationOf('put'), more: RequestParts = {}) {
  return prewrite([rowOf(row)], requestAt(10, [mutation], more), CONTEXT)
}

const locksIn = (mutations: readonly Mutation[]): Lock[] =>
  mutations.flatMap((mutation) => (mutation.type === 'put-lock' ? [mutation.lock] : []))

interface Case {
  readonly name: string
  readonly row?: RowParts
  readonly op?: Op
  readonly mutation?: MutationParts
  readonly request?: RequestParts
  readonly want: string
}

function table(title: string, cases: readonly Case[], always: RequestParts = {}): void {
  describe(title, () => {
    for (const { name, row = {}, op = 'put', mutation, request, want } of cases)
      test(name, () =>
        expect(summary(prewriteOne(row, mutationOf(op, mutation), { ...always, ...request }))).toBe(want),
      )
  })
}

table('optimistic prewrite at 10: what stands in the way', [
  { name: 'nothing: put', want: '+lock put 10' },
  { name: 'nothing: delete', op: 'delete', want: '+lock delete 10' },
  { name: 'nothing: lock', op: 'lock', want: '+lock lock 10' },
  { name: 'nothing: insert', op: 'insert', want: '+lock put 10' },
  { name: 'nothing: check_not_exists', op: 'check_not_exists', want: 'no mutations' },
  { name: 'an older commit', row: { writes: [putAt(3, 5)] }, want: '+lock put 10' },
  { name: 'an older rollback', row: { writes: [rollbackAt(9)] }, want: '+lock put 10' },
  { name: 'a commit at just the start', row: { writes: [putAt(3, 10)] }, want: '+lock put 10' },
  { name: 'a commit just after the start', row: { writes: [putAt(3, 11)] }, want: 'write_conflict optimistic' },
  { name: 'a newer delete', row: { writes: [deleteAt(12, 13)] }, want: 'write_conflict optimistic' },
  { name: 'a newer Lock record', row: { writes: [lockRecordAt(12, 13)] }, want: 'write_conflict optimistic' },
  { name: 'a newer rollback', row: { writes: [rollbackAt(12)] }, want: 'write_conflict optimistic' },
  { name: 'own rollback', row: { writes: [rollbackAt(10)] }, want: 'write_conflict self_rolled_back' },
  {
    name: 'own protected rollback',
    row: { writes: [protectedRollbackAt(10)] },
    want: 'write_conflict self_rolled_back',
  },
  {
    name: 'own rollback, a flag on the commit at the start',
    row: { writes: [overlapped(putAt(3, 10))] },
    want: 'write_conflict self_rolled_back',
  },
  {
    name: 'a flag for another transaction on an older commit',
    row: { writes: [overlapped(putAt(3, 9))] },
    want: '+lock put 10',
  },
  {
    name: 'own rollback below a newer commit',
    row: { writes: [putAt(12, 13), rollbackAt(10)] },
    want: 'write_conflict self_rolled_back',
  },
  { name: "another transaction's lock", row: { lock: lockAt(7) }, want: 'key_locked' },
  { name: "a younger transaction's lock", row: { lock: lockAt(12) }, want: 'key_locked' },
  { name: 'a pessimistic lock of another', row: { lock: pessimisticAt(7) }, want: 'key_locked' },
  { name: 'a foreign lock and a newer commit', row: { lock: lockAt(7), writes: [putAt(12, 13)] }, want: 'key_locked' },
  {
    name: "own rollback under another transaction's lock",
    row: { lock: lockAt(12), writes: [rollbackAt(10)] },
    want: 'write_conflict self_rolled_back',
  },
  { name: 'own lock: a retry', row: { lock: lockAt(10) }, want: 'no mutations' },
  { name: 'own lock, whatever the op', row: { lock: lockAt(10) }, op: 'delete', want: 'no mutations' },
  { name: 'own pessimistic lock', row: { lock: pessimisticAt(10) }, want: 'invalid_argument' },
])

for (const op of ['insert', 'check_not_exists'] as const) {
  const free = op === 'insert' ? '+lock put 10' : 'no mutations'
  table(`${op} at 10`, [
    { name: 'on a put', op, row: { writes: [putAt(3, 5)] }, want: 'already_exists' },
    { name: 'on a put at just the start', op, row: { writes: [putAt(3, 10)] }, want: 'already_exists' },
    { name: 'on a delete', op, row: { writes: [deleteAt(6, 7), putAt(3, 5)] }, want: free },
    {
      name: 'on a Lock record above a put',
      op,
      row: { writes: [lockRecordAt(6, 7), putAt(3, 5)] },
      want: 'already_exists',
    },
    { name: 'on a rollback above a put', op, row: { writes: [rollbackAt(6), putAt(3, 5)] }, want: 'already_exists' },
    { name: 'on a rollback above a delete', op, row: { writes: [rollbackAt(6), deleteAt(3, 5)] }, want: free },
    { name: 'on rollbacks alone', op, row: { writes: [rollbackAt(6), rollbackAt(5)] }, want: free },
    { name: 'on a newer put', op, row: { writes: [putAt(12, 13)] }, want: 'write_conflict optimistic' },
    { name: 'on a foreign lock', op, row: { lock: lockAt(7) }, want: 'key_locked' },
    { name: 'on its own rollback', op, row: { writes: [rollbackAt(10)] }, want: 'write_conflict self_rolled_back' },
    { name: 'after its own prewrite', op, row: { lock: lockAt(10), writes: [putAt(3, 5)] }, want: 'no mutations' },
  ])
}

table(
  'skip_constraint_check',
  [
    { name: 'a newer commit is not looked for', row: { writes: [putAt(12, 13)] }, want: '+lock put 10' },
    { name: 'nor a value, by an insert', op: 'insert', row: { writes: [putAt(3, 5)] }, want: '+lock put 10' },
    { name: 'a foreign lock still stands in the way', row: { lock: lockAt(7) }, want: 'key_locked' },
    { name: 'so does the own rollback', row: { writes: [rollbackAt(10)] }, want: 'write_conflict self_rolled_back' },
    {
      name: 'also below a newer commit',
      row: { writes: [putAt(12, 13), protectedRollbackAt(10)] },
      want: 'write_conflict self_rolled_back',
    },
    {
      name: 'a failed assertion makes up for the check',
      row: { writes: [putAt(12, 13)] },
      mutation: { assertion: 'not_exist' },
      want: 'write_conflict optimistic',
    },
  ],
  { skipConstraintCheck: true },
)

const exist = { assertion: 'exist' } as const
const notExist = { assertion: 'not_exist' } as const
table('assertions', [
  { name: 'exist, on a put', mutation: exist, row: { writes: [putAt(3, 5)] }, want: '+lock put 10' },
  { name: 'exist, on nothing', mutation: exist, want: 'assertion_failed' },
  { name: 'exist, on a delete', mutation: exist, row: { writes: [deleteAt(3, 5)] }, want: 'assertion_failed' },
  {
    name: 'exist, on a rollback above a put',
    mutation: exist,
    row: { writes: [rollbackAt(6), putAt(3, 5)] },
    want: '+lock put 10',
  },
  { name: 'exist, on a Lock record', mutation: exist, row: { writes: [lockRecordAt(3, 5)] }, want: 'assertion_failed' },
  { name: 'not_exist, on nothing', mutation: notExist, want: '+lock put 10' },
  { name: 'not_exist, on a delete', mutation: notExist, row: { writes: [deleteAt(3, 5)] }, want: '+lock put 10' },
  { name: 'not_exist, on a put', mutation: notExist, row: { writes: [putAt(3, 5)] }, want: 'assertion_failed' },
  {
    name: 'not_exist, on a Lock record above a put',
    mutation: notExist,
    row: { writes: [lockRecordAt(6, 7), putAt(3, 5)] },
    want: 'assertion_failed',
  },
  { name: 'of a delete', op: 'delete', mutation: exist, want: 'assertion_failed' },
  { name: 'of a check_not_exists', op: 'check_not_exists', mutation: exist, want: 'assertion_failed' },
  { name: 'not made again by a retry', mutation: exist, row: { lock: lockAt(10) }, want: 'no mutations' },
  {
    name: 'a conflict explains it better',
    mutation: notExist,
    row: { writes: [putAt(12, 13)] },
    want: 'write_conflict optimistic',
  },
  {
    name: 'so does the own rollback',
    mutation: exist,
    row: { writes: [rollbackAt(10)] },
    want: 'write_conflict self_rolled_back',
  },
  {
    name: 'an insert of a key that exists is already_exists',
    op: 'insert',
    mutation: notExist,
    row: { writes: [putAt(3, 5)] },
    want: 'already_exists',
  },
])

const pessimistic = { forUpdateTs: 20 }
table(
  'pessimistic prewrite at 10, for_update_ts 20, action do',
  [
    { name: 'own pessimistic lock', row: { lock: pessimisticAt(10) }, want: '+lock put 10' },
    {
      name: 'own lock and a newer commit',
      row: { lock: pessimisticAt(10), writes: [putAt(12, 13)] },
      want: '+lock put 10',
    },
    {
      name: 'own lock and a commit above for_update_ts',
      row: { lock: pessimisticAt(10), writes: [putAt(22, 23)] },
      want: '+lock put 10',
    },
    {
      name: 'insert: existence was checked on locking',
      op: 'insert',
      row: { lock: pessimisticAt(10), writes: [putAt(3, 5)] },
      want: '+lock put 10',
    },
    { name: 'prewritten already', row: { lock: lockAt(10, { forUpdateTs: 20 }) }, want: 'no mutations' },
    { name: 'a foreign lock', row: { lock: lockAt(7) }, want: 'pessimistic_lock_not_found' },
    { name: 'lock lost, key never written', want: '+lock put 10' },
    { name: 'lock lost, key written before the start', row: { writes: [putAt(3, 9)] }, want: '+lock put 10' },
    {
      name: 'lock lost, key committed at the start',
      row: { writes: [putAt(3, 10)] },
      want: 'pessimistic_lock_not_found',
    },
    { name: 'lock lost, key written since', row: { writes: [putAt(12, 13)] }, want: 'pessimistic_lock_not_found' },
    { name: 'lock lost, rolled back', row: { writes: [rollbackAt(10)] }, want: 'pessimistic_lock_not_found' },
    { name: 'lock lost, newer rollback', row: { writes: [rollbackAt(12)] }, want: 'pessimistic_lock_not_found' },
    { name: 'amended, but the assertion fails', mutation: exist, want: 'assertion_failed' },
    { name: 'amended, and the assertion holds', mutation: exist, row: { writes: [putAt(3, 5)] }, want: '+lock put 10' },
    {
      name: 'own lock, but the assertion fails',
      mutation: exist,
      row: { lock: pessimisticAt(10) },
      want: 'assertion_failed',
    },
    {
      name: 'own lock, assertion fails, and the key was written above for_update_ts',
      mutation: notExist,
      row: { lock: pessimisticAt(10), writes: [putAt(22, 23)] },
      want: 'pessimistic_lock_not_found',
    },
    {
      name: 'own lock, assertion fails, and the transaction was rolled back',
      mutation: exist,
      row: { lock: pessimisticAt(10), writes: [protectedRollbackAt(10)] },
      want: 'write_conflict self_rolled_back',
    },
  ],
  { ...pessimistic, pessimisticActions: ['do'] },
)

table(
  'pessimistic prewrite at 10, for_update_ts 20, action skip',
  [
    { name: 'a free key', want: '+lock put 10' },
    { name: 'a foreign lock', row: { lock: lockAt(7) }, want: 'key_locked' },
    { name: 'a commit up to for_update_ts', row: { writes: [putAt(12, 20)] }, want: '+lock put 10' },
    { name: 'a commit above it', row: { writes: [putAt(12, 21)] }, want: 'pessimistic_lock_not_found' },
    { name: 'a rollback above it is no conflict', row: { writes: [rollbackAt(25)] }, want: '+lock put 10' },
    {
      name: 'but a commit below that one is',
      row: { writes: [rollbackAt(25), putAt(12, 21)] },
      want: 'pessimistic_lock_not_found',
    },
    { name: 'own rollback', row: { writes: [rollbackAt(10)] }, want: 'write_conflict self_rolled_back' },
    {
      name: 'own rollback below a newer one',
      row: { writes: [rollbackAt(25), rollbackAt(10)] },
      want: 'write_conflict self_rolled_back',
    },
    {
      name: 'own rollback below a commit up to for_update_ts',
      row: { writes: [putAt(12, 15), rollbackAt(10)] },
      want: 'write_conflict self_rolled_back',
    },
    {
      name: 'own rollback, a flag on the commit at the start, below a commit up to for_update_ts',
      row: { writes: [putAt(12, 15), overlapped(putAt(3, 10))] },
      want: 'write_conflict self_rolled_back',
    },
    {
      name: 'own rollback, 1PC',
      row: { writes: [putAt(12, 15), protectedRollbackAt(10)] },
      request: { tryOnePc: true },
      want: 'write_conflict self_rolled_back',
    },
    { name: 'insert on a put', op: 'insert', row: { writes: [putAt(12, 15)] }, want: 'already_exists' },
    {
      name: 'insert on a put below a newer rollback',
      op: 'insert',
      row: { writes: [rollbackAt(25), putAt(3, 5)] },
      want: 'already_exists',
    },
    { name: 'own pessimistic lock', row: { lock: pessimisticAt(10) }, want: '+lock put 10' },
    { name: 'prewritten already', row: { lock: lockAt(10, { forUpdateTs: 20 }) }, want: 'no mutations' },
    {
      name: 'assertion on a put between start and for_update_ts',
      mutation: notExist,
      row: { writes: [putAt(12, 15)] },
      want: 'assertion_failed',
    },
  ],
  { ...pessimistic, pessimisticActions: ['skip'] },
)

table(
  'pessimistic prewrite at 10, for_update_ts 20, action constraint',
  [
    { name: 'a free key', want: '+lock put 10' },
    { name: 'a foreign lock', row: { lock: lockAt(7) }, want: 'key_locked' },
    { name: 'a commit at the start', row: { writes: [putAt(3, 10)] }, want: '+lock put 10' },
    { name: 'a commit after the start', row: { writes: [putAt(3, 11)] }, want: 'write_conflict lazy_uniqueness_check' },
    {
      name: 'a commit above for_update_ts',
      row: { writes: [putAt(22, 23)] },
      want: 'write_conflict lazy_uniqueness_check',
    },
    { name: 'a newer rollback', row: { writes: [rollbackAt(12)] }, want: 'write_conflict lazy_uniqueness_check' },
    { name: 'own rollback', row: { writes: [rollbackAt(10)] }, want: 'write_conflict self_rolled_back' },
    { name: 'insert on a put', op: 'insert', row: { writes: [putAt(3, 5)] }, want: 'already_exists' },
    { name: 'insert on a delete', op: 'insert', row: { writes: [deleteAt(3, 5)] }, want: '+lock put 10' },
  ],
  { ...pessimistic, pessimisticActions: ['constraint'] },
)

describe('the lock that a prewrite leaves', () => {
  const plain = { ...lockAt(10, { ttlMs: 3000 }) }
  const cases: {
    name: string
    row?: RowParts
    op?: Op
    mutation?: MutationParts
    request?: RequestParts
    want: Partial<Lock>
  }[] = [
    { name: 'put', want: { shortValue: bytes('v') } },
    { name: 'put of an empty value', mutation: { value: bytes('') }, want: { shortValue: bytes('') } },
    { name: 'delete', op: 'delete', want: { type: 'delete' } },
    { name: 'lock', op: 'lock', want: { type: 'lock' } },
    {
      name: 'TTL, size and min_commit_ts of the request',
      op: 'lock',
      request: { lockTtl: 7, txnSize: 4, minCommitTs: 12 },
      want: { type: 'lock', ttlMs: 7, txnSize: 4, minCommitTs: 12 },
    },
    {
      name: 'async commit, on the primary: every other key',
      op: 'lock',
      request: { useAsyncCommit: true, primary: KEY, secondaries: [bytes('a'), bytes('b')] },
      want: {
        type: 'lock',
        primary: KEY,
        useAsyncCommit: true,
        minCommitTs: 51,
        secondaries: [bytes('a'), bytes('b')],
      },
    },
    {
      name: 'async commit, on a secondary: none',
      op: 'lock',
      request: { useAsyncCommit: true, secondaries: [KEY] },
      want: { type: 'lock', useAsyncCommit: true, minCommitTs: 51 },
    },
    {
      name: 'async commit without secondaries',
      op: 'lock',
      request: { useAsyncCommit: true, primary: KEY },
      want: { type: 'lock', primary: KEY, useAsyncCommit: true, minCommitTs: 51 },
    },
    {
      name: 'secondaries without async commit are not kept',
      op: 'lock',
      request: { primary: KEY, secondaries: [bytes('a')] },
      want: { type: 'lock', primary: KEY },
    },
    {
      name: 'async commit above max_commit_ts: a plain lock',
      op: 'lock',
      request: { useAsyncCommit: true, primary: KEY, secondaries: [bytes('a')], maxCommitTs: 50, minCommitTs: 12 },
      want: { type: 'lock', primary: KEY, minCommitTs: 12 },
    },
    {
      name: 'for_update_ts of the request, when the lock was taken earlier',
      row: { lock: pessimisticAt(10, { forUpdateTs: 15 }) },
      op: 'lock',
      request: { ...pessimistic, pessimisticActions: ['do'] },
      want: { type: 'lock', forUpdateTs: 20 },
    },
    {
      name: 'for_update_ts, TTL and min_commit_ts of the pessimistic lock, where higher',
      row: { lock: pessimisticAt(10, { forUpdateTs: 25, ttlMs: 9000, minCommitTs: 30 }) },
      op: 'lock',
      request: { ...pessimistic, pessimisticActions: ['do'], minCommitTs: 12 },
      want: { type: 'lock', forUpdateTs: 25, ttlMs: 9000, minCommitTs: 30 },
    },
    {
      name: 'an amended lock',
      op: 'lock',
      request: { ...pessimistic, pessimisticActions: ['do'] },
      want: { type: 'lock', forUpdateTs: 20 },
    },
    {
      name: 'async commit with a pessimistic lock',
      row: { lock: pessimisticAt(10, { minCommitTs: 70 }) },
      op: 'lock',
      request: { ...pessimistic, pessimisticActions: ['do'], useAsyncCommit: true },
      want: { type: 'lock', forUpdateTs: 20, useAsyncCommit: true, minCommitTs: 70 },
    },
  ]
  for (const { name, row = {}, op = 'put', mutation, request, want } of cases)
    test(name, () => {
      const { mutations } = mustSucceed(prewriteOne(row, mutationOf(op, mutation), request))
      expect(readable(mutations)).toEqual(readable([{ type: 'put-lock', key: KEY, lock: { ...plain, ...want } }]))
    })
})

describe('short and long values', () => {
  const cases = [
    { name: '255 bytes travel in the lock', length: 255, request: {}, want: '+lock put 10', inline: true },
    { name: '256 bytes stand beside it', length: 256, request: {}, want: '+lock put 10, +value 10', inline: false },
    { name: '1PC, 255 bytes', length: 255, request: { tryOnePc: true }, want: '+put 10..51', inline: true },
    { name: '1PC, 256 bytes', length: 256, request: { tryOnePc: true }, want: '+put 10..51, +value 10', inline: false },
  ]
  for (const { name, length, request, want, inline } of cases)
    test(name, () => {
      const value = Buffer.alloc(length, 'x')
      const { mutations } = mustSucceed(prewriteOne({}, mutationOf('put', { value }), request))
      expect(changes(mutations)).toBe(want)
      const shortValues = mutations.flatMap((mutation) => {
        if (mutation.type === 'put-lock') return [mutation.lock.shortValue]
        return mutation.type === 'put-write' ? [mutation.write.shortValue] : []
      })
      expect(shortValues).toEqual([inline ? value : undefined])
    })
})

describe('the answer, with max_ts 50', () => {
  const async = { useAsyncCommit: true }
  const onePc = { tryOnePc: true }
  const cases: { name: string; row?: RowParts; op?: Op; request?: RequestParts; want: object; changes: string }[] = [
    { name: 'plain: nothing', want: {}, changes: '+lock put 10' },
    { name: 'plain: max_commit_ts means nothing', request: { maxCommitTs: 11 }, want: {}, changes: '+lock put 10' },
    { name: 'async: above max_ts', request: async, want: { minCommitTs: 51 }, changes: '+lock put 10' },
    {
      name: 'async: at least min_commit_ts',
      request: { ...async, minCommitTs: 60 },
      want: { minCommitTs: 60 },
      changes: '+lock put 10',
    },
    {
      name: 'async: max_commit_ts reached',
      request: { ...async, maxCommitTs: 51 },
      want: { minCommitTs: 51 },
      changes: '+lock put 10',
    },
    { name: 'async: max_commit_ts passed', request: { ...async, maxCommitTs: 50 }, want: {}, changes: '+lock put 10' },
    {
      name: 'async: min_commit_ts above max_commit_ts',
      request: { ...async, minCommitTs: 61, maxCommitTs: 60 },
      want: {},
      changes: '+lock put 10',
    },
    {
      name: 'async: max_commit_ts 0 is not given',
      request: { ...async, maxCommitTs: 0 },
      want: { minCommitTs: 51 },
      changes: '+lock put 10',
    },
    {
      name: 'async: above for_update_ts',
      request: { ...async, forUpdateTs: 55, pessimisticActions: ['skip'] },
      want: { minCommitTs: 56 },
      changes: '+lock put 10',
    },
    {
      name: 'async, again: the min_commit_ts of the lock',
      row: { lock: asyncAt(10, { minCommitTs: 40 }) },
      request: async,
      want: { minCommitTs: 40 },
      changes: 'no mutations',
    },
    {
      name: 'async, again: an earlier try fell back',
      row: { lock: lockAt(10) },
      request: async,
      want: {},
      changes: 'no mutations',
    },
    {
      name: 'async, again above max_commit_ts: the min_commit_ts of the lock all the same',
      row: { lock: asyncAt(10, { minCommitTs: 70 }) },
      request: { ...async, maxCommitTs: 60 },
      want: { minCommitTs: 70 },
      changes: 'no mutations',
    },
    {
      name: 'plain, again: an earlier try was async',
      row: { lock: asyncAt(10) },
      want: { minCommitTs: 11 },
      changes: 'no mutations',
    },
    {
      name: '1PC, again: an earlier try was async',
      row: { lock: asyncAt(10) },
      request: onePc,
      want: { minCommitTs: 11 },
      changes: 'no mutations',
    },
    {
      name: 'async: check_not_exists alone, whatever was read',
      op: 'check_not_exists',
      request: { ...async, primary: KEY },
      want: { minCommitTs: 11 },
      changes: 'no mutations',
    },
    {
      name: 'async: check_not_exists alone, at least min_commit_ts',
      op: 'check_not_exists',
      request: { ...async, primary: KEY, minCommitTs: 60 },
      want: { minCommitTs: 60 },
      changes: 'no mutations',
    },
    {
      name: 'async: check_not_exists in a request without the primary: the locks elsewhere have the min_commit_ts',
      op: 'check_not_exists',
      request: { ...async, minCommitTs: 60 },
      want: { minCommitTs: 11 },
      changes: 'no mutations',
    },
    {
      name: 'async: a primary that writes nothing decides nothing',
      op: 'check_not_exists',
      request: { ...async, primary: KEY, secondaries: [PRIMARY] },
      want: {},
      changes: 'no mutations',
    },
    { name: '1PC: committed above max_ts', request: onePc, want: { onePcCommitTs: 51 }, changes: '+put 10..51' },
    {
      name: '1PC: at least min_commit_ts',
      request: { ...onePc, minCommitTs: 60 },
      want: { onePcCommitTs: 60 },
      changes: '+put 10..60',
    },
    { name: '1PC: delete', op: 'delete', request: onePc, want: { onePcCommitTs: 51 }, changes: '+delete 10..51' },
    { name: '1PC: lock', op: 'lock', request: onePc, want: { onePcCommitTs: 51 }, changes: '+lock 10..51' },
    { name: '1PC: insert', op: 'insert', request: onePc, want: { onePcCommitTs: 51 }, changes: '+put 10..51' },
    {
      name: '1PC: check_not_exists alone, whatever was read',
      op: 'check_not_exists',
      request: onePc,
      want: { onePcCommitTs: 11 },
      changes: 'no mutations',
    },
    {
      name: '1PC: max_commit_ts reached',
      request: { ...onePc, maxCommitTs: 51 },
      want: { onePcCommitTs: 51 },
      changes: '+put 10..51',
    },
    { name: '1PC: max_commit_ts passed', request: { ...onePc, maxCommitTs: 50 }, want: {}, changes: '+lock put 10' },
    {
      name: '1PC: an earlier try fell back',
      row: { lock: lockAt(10) },
      request: onePc,
      want: {},
      changes: 'no mutations',
    },
    {
      name: '1PC: the pessimistic lock goes',
      row: { lock: pessimisticAt(10) },
      request: { ...onePc, ...pessimistic, pessimisticActions: ['do'] },
      want: { onePcCommitTs: 51 },
      changes: '+put 10..51, -lock',
    },
    {
      name: '1PC: above the min_commit_ts of the pessimistic lock',
      row: { lock: pessimisticAt(10, { minCommitTs: 70 }) },
      request: { ...onePc, ...pessimistic, pessimisticActions: ['do'] },
      want: { onePcCommitTs: 70 },
      changes: '+put 10..70, -lock',
    },
    {
      name: '1PC with async commit: 1PC',
      request: { ...onePc, ...async },
      want: { onePcCommitTs: 51 },
      changes: '+put 10..51',
    },
    {
      name: '1PC with async commit: otherwise plain',
      request: { ...onePc, ...async, maxCommitTs: 50 },
      want: {},
      changes: '+lock put 10',
    },
    {
      name: 'again after the commit: its timestamp',
      row: { writes: [putAt(10, 30)] },
      request: async,
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'again after the commit: plain too',
      row: { writes: [putAt(10, 30)] },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'again after the commit: 1PC',
      row: { writes: [putAt(10, 30)] },
      request: onePc,
      want: { onePcCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'again after the commit: another transaction wrote since',
      row: { writes: [putAt(32, 33), deleteAt(10, 30)] },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'again after the commit: another transaction locked since',
      row: { lock: lockAt(32), writes: [lockRecordAt(10, 30)] },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'insert again after the commit',
      op: 'insert',
      row: { writes: [putAt(10, 30)] },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'pessimistic again after the commit',
      row: { writes: [putAt(10, 30)] },
      request: { ...pessimistic, pessimisticActions: ['do'] },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'pessimistic again after the commit, of a key never locked',
      row: { writes: [putAt(10, 30)] },
      request: { ...pessimistic, pessimisticActions: ['skip'] },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
    {
      name: 'again after the commit, above max_commit_ts',
      row: { writes: [putAt(10, 30)] },
      request: { ...async, maxCommitTs: 40 },
      want: { minCommitTs: 30 },
      changes: 'no mutations',
    },
  ]
  for (const { name, row = {}, op = 'put', request, want, changes: wanted } of cases)
    test(name, () => {
      const { value, mutations } = mustSucceed(prewriteOne(row, mutationOf(op), request))
      expect(value).toEqual(want)
      expect(changes(mutations)).toBe(wanted)
    })
})

const [A, B, C] = [bytes('a'), bytes('b'), bytes('c')] as const

function prewriteMany(rows: readonly RowView[], more: RequestParts = {}, ops: readonly MutationParts[] = []) {
  const mutations = rows.map((row, i) => mutationOf('put', { key: row.key, ...ops[i] }))
  return prewrite(rows, requestAt(10, mutations, more), CONTEXT)
}

describe('several keys', () => {
  const free = (key: Uint8Array): RowView => rowOf({ key })
  const held = (key: Uint8Array): RowView => rowOf({ key, lock: lockAt(7) })
  const newer = (key: Uint8Array): RowView => rowOf({ key, writes: [putAt(12, 13)] })
  const committed = (key: Uint8Array): RowView => rowOf({ key, writes: [putAt(10, 30)] })
  const assertExist: MutationParts = { assertion: 'exist' }
  const cases: { name: string; rows: RowView[]; ops?: MutationParts[]; request?: RequestParts; want: string }[] = [
    { name: 'all free', rows: [free(A), free(B)], want: 'a: +lock put 10, b: +lock put 10' },
    { name: 'a lock on one: nothing is written', rows: [free(A), held(B)], want: 'key_locked' },
    { name: 'a lock, then a conflict: the conflict', rows: [held(A), newer(B)], want: 'write_conflict optimistic' },
    { name: 'a conflict, then a lock: the conflict', rows: [newer(A), held(B)], want: 'write_conflict optimistic' },
    {
      name: 'a failed assertion, then a conflict: the conflict',
      rows: [free(A), newer(B)],
      ops: [assertExist],
      want: 'write_conflict optimistic',
    },
    {
      name: 'a failed assertion and a lock: the assertion',
      rows: [free(A), held(B)],
      ops: [assertExist],
      want: 'assertion_failed',
    },
    {
      name: 'committed before, on some keys so far: the rest is not locked anew',
      rows: [rowOf({ key: A, lock: lockAt(10) }), committed(B), committed(C)],
      want: 'no mutations',
    },
    {
      name: 'committed before, and locked since elsewhere',
      rows: [rowOf({ key: A, lock: lockAt(32), writes: [putAt(10, 30)] }), committed(B)],
      want: 'no mutations',
    },
    {
      name: 'committed before, what was only checked was written since',
      rows: [newer(A), committed(B)],
      ops: [{ op: 'check_not_exists' }],
      want: 'no mutations',
    },
    {
      name: 'committed on one key, and nothing on another: somebody else used the start_ts',
      rows: [free(A), committed(B), free(C)],
      want: 'write_conflict self_rolled_back',
    },
    {
      name: 'nor does a pessimistic lock say that the key was part of the commit',
      rows: [committed(A), rowOf({ key: B, lock: pessimisticAt(10) })],
      request: { ...pessimistic, pessimisticActions: ['do', 'do'] },
      want: 'write_conflict self_rolled_back',
    },
    {
      name: '1PC: all at one timestamp',
      rows: [free(A), free(B)],
      request: { tryOnePc: true },
      want: 'a: +put 10..51, b: +put 10..51',
    },
    {
      name: '1PC: an earlier try locked one, so the other is locked too',
      rows: [free(A), rowOf({ key: B, lock: lockAt(10) })],
      request: { tryOnePc: true },
      want: 'a: +lock put 10',
    },
    {
      name: '1PC: check_not_exists writes nothing',
      rows: [free(A), free(B)],
      ops: [{}, { op: 'check_not_exists' }],
      request: { tryOnePc: true },
      want: 'a: +put 10..51',
    },
  ]
  for (const { name, rows, ops, request, want } of cases)
    test(name, () => expect(summary(prewriteMany(rows, request, ops))).toBe(want))

  test('async: every lock falls back when an earlier try left one plain lock', () => {
    const rows = [free(A), rowOf({ key: B, lock: lockAt(10) }), free(C)]
    const { value, mutations } = mustSucceed(
      prewriteMany(rows, { useAsyncCommit: true, primary: A, secondaries: [B, C] }),
    )
    expect(value).toEqual({})
    expect(locksIn(mutations).map((lock) => [lock.useAsyncCommit, lock.secondaries.length, lock.minCommitTs])).toEqual([
      [false, 0, 0],
      [false, 0, 0],
    ])
  })

  test('async: what writes nothing takes no part, however often it is asked', () => {
    const ops: MutationParts[] = [{}, { op: 'check_not_exists' }]
    const request: RequestParts = { useAsyncCommit: true, primary: A, secondaries: [] }
    const again = [rowOf({ key: A, lock: asyncAt(10, { minCommitTs: 11 }) }), free(B)]
    expect(mustSucceed(prewriteMany(again, request, ops)).value).toEqual({ minCommitTs: 11 })
    expect(mustSucceed(prewriteMany(again, { ...request, minCommitTs: 40 }, ops)).value).toEqual({ minCommitTs: 11 })
    expect(mustSucceed(prewriteMany(again, { ...request, maxCommitTs: 20 }, ops)).value).toEqual({ minCommitTs: 11 })
  })

  test('async: locks that stand are not measured by max_commit_ts, new ones are', () => {
    const rows = [rowOf({ key: A, lock: asyncAt(10, { minCommitTs: 70 }) }), free(B)]
    const within = mustSucceed(prewriteMany(rows, { useAsyncCommit: true, maxCommitTs: 60 }))
    expect(within.value).toEqual({ minCommitTs: 70 })
    expect(locksIn(within.mutations).map((lock) => lock.useAsyncCommit)).toEqual([true])
    const beyond = mustSucceed(prewriteMany(rows, { useAsyncCommit: true, maxCommitTs: 50 }))
    expect(beyond.value).toEqual({})
    expect(locksIn(beyond.mutations).map((lock) => lock.useAsyncCommit)).toEqual([false])
  })

  test('async: without a lock on the primary every lock is plain', () => {
    const ops: MutationParts[] = [{ op: 'check_not_exists' }]
    const outcome = mustSucceed(prewriteMany([free(A), free(B)], { useAsyncCommit: true, primary: A }, ops))
    expect(outcome.value).toEqual({})
    expect(locksIn(outcome.mutations).map((lock) => lock.useAsyncCommit)).toEqual([false])
  })

  test('1PC again: what was checked, and written by another since, does not matter', () => {
    const ops: MutationParts[] = [{ op: 'check_not_exists' }]
    const again = [rowOf({ key: A, writes: [putAt(35, 36)] }), committed(B)]
    expect(mustSucceed(prewriteMany(again, { tryOnePc: true }, ops)).value).toEqual({ onePcCommitTs: 30 })
  })

  test('async: the answer is the highest min_commit_ts of all locks', () => {
    const rows = [rowOf({ key: A, lock: asyncAt(10, { minCommitTs: 70 }) }), free(B)]
    const { value, mutations } = mustSucceed(prewriteMany(rows, { useAsyncCommit: true }))
    expect(value).toEqual({ minCommitTs: 70 })
    expect(locksIn(mutations).map((lock) => lock.minCommitTs)).toEqual([51])
  })

  test('each key has its own pessimistic action', () => {
    const rows = [rowOf({ key: A, lock: pessimisticAt(10) }), rowOf({ key: B, writes: [putAt(12, 15)] }), free(C)]
    const more: RequestParts = { ...pessimistic, pessimisticActions: ['do', 'skip', 'constraint'] }
    expect(summary(prewriteMany(rows, more))).toBe('a: +lock put 10, b: +lock put 10, c: +lock put 10')
    const swapped: RequestParts = { ...pessimistic, pessimisticActions: ['do', 'constraint', 'skip'] }
    expect(summary(prewriteMany(rows, swapped))).toBe('write_conflict lazy_uniqueness_check')
  })

  test('locks met are all listed, in `errors`; the first is the error itself', () => {
    const outcome = prewriteMany([held(A), free(B), rowOf({ key: C, lock: lockAt(12) })])
    if (outcome.ok) throw new Error('expected key_locked')
    const { error } = outcome
    expect(error.code).toBe('key_locked')
    expect(readable(error.fields)).toEqual({ key: 'a', lock: lockInfoOf('a', 7) })
    expect(error.errors?.map(({ code, fields }) => readable({ code, ...fields }))).toEqual([
      { code: 'key_locked', key: 'a', lock: lockInfoOf('a', 7) },
      { code: 'key_locked', key: 'c', lock: lockInfoOf('c', 12) },
    ])
  })

  test('any other failure stands alone in `errors`', () => {
    const outcome = prewriteMany([held(A), newer(B), held(C)])
    if (outcome.ok) throw new Error('expected write_conflict')
    expect(outcome.error.errors).toHaveLength(1)
    expect(outcome.error.errors?.[0]).toBeInstanceOf(KvError)
    expect(outcome.error.errors?.[0]?.code).toBe('write_conflict')
  })
})

describe('the fields of each error', () => {
  const cases: {
    name: string
    row?: RowParts
    op?: Op
    mutation?: MutationParts
    request?: RequestParts
    want: object
  }[] = [
    { name: 'key_locked', row: { lock: lockAt(7) }, want: { code: 'key_locked', key: 'k', lock: lockInfoOf('k', 7) } },
    {
      name: 'key_locked to a pessimistic transaction: to be resolved at once',
      row: { lock: lockAt(7) },
      request: { ...pessimistic, pessimisticActions: ['skip'] },
      want: { code: 'key_locked', key: 'k', lock: lockInfoOf('k', 7, { ttl: 0 }) },
    },
    {
      name: 'write_conflict',
      row: { writes: [putAt(12, 13)] },
      want: {
        code: 'write_conflict',
        key: 'k',
        startTs: 10,
        conflictStartTs: 12,
        conflictCommitTs: 13,
        primary: 'p',
        reason: 'optimistic',
      },
    },
    {
      name: 'write_conflict with a rollback of its own',
      row: { writes: [overlapped(putAt(3, 10))] },
      want: {
        code: 'write_conflict',
        key: 'k',
        startTs: 10,
        conflictStartTs: 3,
        conflictCommitTs: 10,
        primary: 'p',
        reason: 'self_rolled_back',
      },
    },
    {
      name: 'already_exists',
      op: 'insert',
      row: { writes: [putAt(3, 5)] },
      want: { code: 'already_exists', key: 'k' },
    },
    {
      name: 'assertion_failed, by absence',
      mutation: exist,
      want: {
        code: 'assertion_failed',
        key: 'k',
        startTs: 10,
        assertion: 'exist',
        existingStartTs: 0,
        existingCommitTs: 0,
      },
    },
    {
      name: 'assertion_failed, by a delete',
      mutation: exist,
      row: { writes: [rollbackAt(6), deleteAt(3, 5)] },
      want: {
        code: 'assertion_failed',
        key: 'k',
        startTs: 10,
        assertion: 'exist',
        existingStartTs: 3,
        existingCommitTs: 5,
      },
    },
    {
      name: 'assertion_failed, by a put',
      mutation: notExist,
      row: { writes: [putAt(3, 5)] },
      want: {
        code: 'assertion_failed',
        key: 'k',
        startTs: 10,
        assertion: 'not_exist',
        existingStartTs: 3,
        existingCommitTs: 5,
      },
    },
    {
      name: 'pessimistic_lock_not_found',
      row: { lock: lockAt(7) },
      request: { ...pessimistic, pessimisticActions: ['do'] },
      want: { code: 'pessimistic_lock_not_found', key: 'k', startTs: 10 },
    },
    {
      name: 'invalid_argument',
      row: { lock: pessimisticAt(10) },
      want: { code: 'invalid_argument', field: 'for_update_ts' },
    },
  ]
  for (const { name, row = {}, op = 'put', mutation, request, want } of cases)
    test(name, () => expect(failure(prewriteOne(row, mutationOf(op, mutation), request))).toEqual(want))
})

test('the history that each mutation needs', () => {
  expect(prewriteDepth(mutationOf('put'))).toBe('since')
  expect(prewriteDepth(mutationOf('delete'))).toBe('since')
  expect(prewriteDepth(mutationOf('lock'))).toBe('since')
  expect(prewriteDepth(mutationOf('insert'))).toBe('data')
  expect(prewriteDepth(mutationOf('check_not_exists'))).toBe('data')
  expect(prewriteDepth(mutationOf('put', { assertion: 'exist' }))).toBe('data')
})

describe('rare requests that the contract covers too', () => {
  const locked = pessimisticAt(10, { minCommitTs: 100 })
  const withLimit: RequestParts = { ...pessimistic, pessimisticActions: ['do'], maxCommitTs: 60 }

  test('async commit falls back when a heartbeat raised the pessimistic lock above max_commit_ts', () => {
    const { value, mutations } = mustSucceed(
      prewriteOne({ lock: locked }, mutationOf('put'), { ...withLimit, useAsyncCommit: true }),
    )
    expect(locksIn(mutations).map((lock) => lock.useAsyncCommit)).toEqual([false])
    expect(value).toEqual({})
  })

  test('so does 1PC', () => {
    const { value, mutations } = mustSucceed(
      prewriteOne({ lock: locked }, mutationOf('put'), { ...withLimit, tryOnePc: true }),
    )
    expect(changes(mutations)).toBe('+lock put 10')
    expect(value).toEqual({})
  })

  test('a prewrite repeated after its commit locks nothing, with skip_constraint_check too', () => {
    const outcome = prewriteOne({ writes: [putAt(10, 30)] }, mutationOf('put'), { skipConstraintCheck: true })
    expect(mustSucceed(outcome).value).toEqual({ minCommitTs: 30 })
    expect(summary(outcome)).toBe('no mutations')
  })

  test('a 1PC prewrite repeated later stays at one commitTs, with skip_constraint_check too', () => {
    const request = requestAt(10, [mutationOf('put')], { tryOnePc: true, skipConstraintCheck: true })
    const first = mustSucceed(prewrite([rowOf()], request, CONTEXT))
    const row = applyTo(rowOf(), first.mutations)
    const again = mustSucceed(prewrite([row], request, { ...CONTEXT, maxTs: 80 }))
    expect(again.value).toEqual({ onePcCommitTs: 51 })
    expect(changes(again.mutations)).toBe('no mutations')
  })
})
