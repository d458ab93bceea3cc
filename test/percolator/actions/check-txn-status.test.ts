import { describe, expect, test } from 'vitest'
import { checkTxnStatus } from '../../../src/percolator/actions/check-txn-status.js'
import type { CheckTxnStatusRequest, TxnStatus } from '../../../src/percolator/api.js'
import type { Lock } from '../../../src/percolator/lock.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import {
  asyncAt,
  bytes,
  changes,
  failure,
  KEY,
  lockAt,
  lockInfoOf,
  lockRecordAt,
  ms,
  mustSucceed,
  overlapped,
  pessimisticAt,
  protectedRollbackAt,
  putAt,
  type RowParts,
  readable,
  rollbackAt,
  rowOf,
  summary,
} from '../builders.js'

const OWN = { primary: KEY, shortValue: bytes('v') }
const primaryAt = (startTs: number, more: Partial<Lock> = {}): Lock => lockAt(startTs, { ...OWN, ...more })
const ALIVE = ms(101) - 1
const EXPIRED = ms(101)

interface Case {
  readonly name: string
  readonly row?: RowParts
  readonly request?: Partial<CheckTxnStatusRequest>
  /** `status action` with `@commitTs` when committed, or the error's code. */
  readonly want: string
  readonly changes?: string
}

function check(row: RowParts, more: Partial<CheckTxnStatusRequest> = {}) {
  const request: CheckTxnStatusRequest = { primary: KEY, lockTs: 10, callerStartTs: 0, currentTs: ALIVE, ...more }
  return checkTxnStatus(rowOf(row), request)
}

function describeStatus(status: TxnStatus): string {
  return `${status.status}${status.status === 'committed' ? `@${status.commitTs}` : ''} ${status.action}`
}

function table(title: string, cases: readonly Case[], always: Partial<CheckTxnStatusRequest> = {}): void {
  describe(title, () => {
    for (const { name, row = {}, request, want, changes: wanted = 'no mutations' } of cases)
      test(name, () => {
        const outcome = check(row, { ...always, ...request })
        expect(outcome.ok ? describeStatus(outcome.value) : summary(outcome)).toBe(want)
        if (!outcome.ok) return
        expect(changes(outcome.mutations)).toBe(wanted)
        expect(outcome.value.lock === undefined).toBe(outcome.value.status !== 'locked')
        if (outcome.value.status !== 'locked') expect(outcome.value.lockTtl).toBe(0)
        if (outcome.value.status !== 'committed') expect(outcome.value.commitTs).toBe(0)
      })
  })
}

const MISSING: readonly Case[] = [
  { name: 'committed', row: { writes: [putAt(10, 20)] }, want: 'committed@20 no_action' },
  { name: 'committed, a Lock record', row: { writes: [lockRecordAt(10, 20)] }, want: 'committed@20 no_action' },
  {
    name: 'committed, locked since by another',
    row: { lock: lockAt(30), writes: [putAt(25, 28), putAt(10, 20)] },
    want: 'committed@20 no_action',
  },
  { name: 'rolled back', row: { writes: [rollbackAt(10)] }, want: 'rolled_back no_action' },
  {
    name: 'rolled back, a flag on the commit at its start',
    row: { writes: [overlapped(putAt(5, 10))] },
    want: 'rolled_back no_action',
  },
]

table('no lock', [
  ...MISSING,
  { name: 'no trace', want: 'txn_not_found' },
  { name: 'no trace, a foreign lock', row: { lock: primaryAt(7) }, want: 'txn_not_found' },
  { name: "no trace, another's commit at the start", row: { writes: [putAt(5, 10)] }, want: 'txn_not_found' },
])

table(
  'no lock, rollback_if_not_exist',
  [
    ...MISSING,
    { name: 'no trace', want: 'rolled_back lock_not_exist_rollback', changes: '+rollback 10 protected' },
    {
      name: 'no trace: nothing is collapsed',
      row: { writes: [rollbackAt(5)] },
      want: 'rolled_back lock_not_exist_rollback',
      changes: '+rollback 10 protected',
    },
    {
      name: "another's commit at the start",
      row: { writes: [putAt(5, 10)] },
      want: 'rolled_back lock_not_exist_rollback',
      changes: '+put 5..10 overlapped',
    },
    {
      name: 'a foreign lock',
      row: { lock: primaryAt(7) },
      want: 'rolled_back lock_not_exist_rollback',
      changes: '+rollback 10 protected',
    },
    {
      name: 'an async-commit lock that may commit at 10 remembers it',
      row: { lock: asyncAt(7, { minCommitTs: 10 }) },
      want: 'rolled_back lock_not_exist_rollback',
      changes: '+lock put 7, +rollback 10 protected',
    },
    {
      name: 'one that commits above 10 need not',
      row: { lock: asyncAt(7, { minCommitTs: 11 }) },
      want: 'rolled_back lock_not_exist_rollback',
      changes: '+rollback 10 protected',
    },
  ],
  { rollbackIfNotExist: true },
)

table(
  'no lock, resolving a pessimistic lock',
  [
    ...MISSING,
    { name: 'no trace', want: 'txn_not_found' },
    {
      name: 'no trace, rollback_if_not_exist',
      request: { rollbackIfNotExist: true },
      want: 'rolled_back lock_not_exist_do_nothing',
    },
    {
      name: 'a foreign lock',
      row: { lock: asyncAt(7) },
      request: { rollbackIfNotExist: true },
      want: 'rolled_back lock_not_exist_do_nothing',
    },
  ],
  { resolvingPessimisticLock: true },
)

table('its lock, TTL 100 ms', [
  { name: 'in the last millisecond', row: { lock: primaryAt(10) }, want: 'locked no_action' },
  {
    name: 'after it',
    row: { lock: primaryAt(10) },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock',
  },
  {
    name: 'a long value goes along',
    row: { lock: primaryAt(10, { shortValue: undefined }) },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock, -value 10',
  },
  {
    name: 'the rollback before it is collapsed',
    row: { lock: primaryAt(10), writes: [rollbackAt(5)] },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock, -write 5',
  },
  {
    name: 'a protected one stays',
    row: { lock: primaryAt(10), writes: [protectedRollbackAt(5)] },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock',
  },
  {
    name: "another's commit at the start takes the flag",
    row: { lock: primaryAt(10), writes: [putAt(5, 10)] },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+put 5..10 overlapped, -lock',
  },
  {
    name: 'rolled back before, but locked',
    row: { lock: primaryAt(10), writes: [rollbackAt(10)] },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '-lock',
  },
  {
    name: 'not the primary, and nobody asks: unprotected',
    row: { lock: lockAt(10, { shortValue: bytes('v') }) },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10, -lock',
  },
  { name: 'pessimistic, alive', row: { lock: pessimisticAt(10, OWN) }, want: 'locked no_action' },
  {
    name: 'pessimistic, expired',
    row: { lock: pessimisticAt(10, OWN) },
    request: { currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock',
  },
  {
    name: 'pessimistic, expired, resolving a pessimistic lock: no record',
    row: { lock: pessimisticAt(10, OWN) },
    request: { currentTs: EXPIRED, resolvingPessimisticLock: true },
    want: 'rolled_back ttl_expire_pessimistic_rollback',
    changes: '-lock',
  },
  {
    name: 'prewritten, expired, resolving a pessimistic lock: a record',
    row: { lock: primaryAt(10) },
    request: { currentTs: EXPIRED, resolvingPessimisticLock: true },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock',
  },
])

const pushable = { lock: primaryAt(10, { minCommitTs: 15 }) }
table('min_commit_ts of a living lock', [
  { name: 'a caller below it', row: pushable, request: { callerStartTs: 14 }, want: 'locked min_commit_ts_pushed' },
  {
    name: 'a caller at it',
    row: pushable,
    request: { callerStartTs: 15, currentTs: 15 },
    want: 'locked min_commit_ts_pushed',
    changes: '+lock put 10',
  },
  {
    name: 'a caller above it',
    row: pushable,
    request: { callerStartTs: 30 },
    want: 'locked min_commit_ts_pushed',
    changes: '+lock put 10',
  },
  { name: 'no caller', row: pushable, want: 'locked no_action' },
  {
    name: 'a caller that reads the latest',
    row: pushable,
    request: { callerStartTs: TIMESTAMP_MAX },
    want: 'locked min_commit_ts_pushed',
  },
  { name: 'none was set', row: { lock: primaryAt(10) }, request: { callerStartTs: 30 }, want: 'locked no_action' },
  {
    name: 'none was set, a caller that reads the latest',
    row: { lock: primaryAt(10) },
    request: { callerStartTs: TIMESTAMP_MAX },
    want: 'locked min_commit_ts_pushed',
  },
  {
    name: 'expired: rolled back, not pushed',
    row: pushable,
    request: { callerStartTs: 30, currentTs: EXPIRED },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock',
  },
])

const async = { lock: asyncAt(10, { primary: KEY, minCommitTs: 15 }) }
table('async commit', [
  { name: 'alive', row: async, want: 'locked no_action' },
  { name: 'expired: its secondaries decide', row: async, request: { currentTs: EXPIRED }, want: 'locked no_action' },
  { name: 'not pushed', row: async, request: { callerStartTs: 30 }, want: 'locked no_action' },
  {
    name: 'a caller that reads the latest',
    row: async,
    request: { callerStartTs: TIMESTAMP_MAX },
    want: 'locked no_action',
  },
  {
    name: 'forced, expired',
    row: async,
    request: { currentTs: EXPIRED, forceSyncCommit: true },
    want: 'rolled_back ttl_expire_rollback',
    changes: '+rollback 10 protected, -lock',
  },
  {
    name: 'forced, pushed',
    row: async,
    request: { callerStartTs: 30, forceSyncCommit: true },
    want: 'locked min_commit_ts_pushed',
    changes: '+lock put 10',
  },
])

const stale = { lock: pessimisticAt(10) }
const stalePrewritten = { lock: lockAt(10) }
table(
  'verify_is_primary',
  [
    { name: 'it is', row: { lock: primaryAt(10) }, want: 'locked no_action' },
    { name: 'it is not', row: stalePrewritten, want: 'primary_mismatch' },
    { name: 'it is not, expired', row: stalePrewritten, request: { currentTs: EXPIRED }, want: 'primary_mismatch' },
    {
      name: 'it is not, resolving a pessimistic lock',
      row: stale,
      request: { resolvingPessimisticLock: true },
      want: 'primary_mismatch',
    },
    {
      name: 'a left-over pessimistic lock, committed',
      row: { ...stale, writes: [putAt(10, 20)] },
      want: 'committed@20 no_action',
      changes: '-lock',
    },
    {
      name: 'a left-over pessimistic lock, rolled back',
      row: { ...stale, writes: [rollbackAt(10)] },
      want: 'rolled_back no_action',
      changes: '-lock',
    },
    { name: 'a left-over pessimistic lock, no trace', row: stale, want: 'txn_not_found' },
    {
      name: 'a left-over pessimistic lock, no trace, rollback_if_not_exist',
      row: stale,
      request: { rollbackIfNotExist: true },
      want: 'rolled_back lock_not_exist_rollback',
      changes: '+rollback 10 protected, -lock',
    },
    { name: 'no lock to verify', row: { writes: [putAt(10, 20)] }, want: 'committed@20 no_action' },
  ],
  { verifyIsPrimary: true },
)

test('without verify_is_primary a secondary answers for itself', () =>
  expect(mustSucceed(check(stalePrewritten)).value.status).toBe('locked'))

const pushes = [
  { name: 'just above the caller', callerStartTs: 30, currentTs: 20, want: 31 },
  { name: 'up to the current timestamp', callerStartTs: 30, currentTs: 40, want: 40 },
]
for (const { name, callerStartTs, currentTs, want } of pushes)
  test(`min_commit_ts is pushed ${name}, in the store and in the answer`, () => {
    const { value, mutations } = mustSucceed(check(pushable, { callerStartTs, currentTs }))
    expect(mutations).toEqual([{ type: 'put-lock', key: KEY, lock: { ...pushable.lock, minCommitTs: want } }])
    expect(readable(value)).toEqual({
      status: 'locked',
      lockTtl: 100,
      commitTs: 0,
      action: 'min_commit_ts_pushed',
      lock: lockInfoOf('k', 10, { primary: 'k', minCommitTs: want }),
    })
  })

test('the fields of each error', () => {
  expect(failure(check({}))).toEqual({ code: 'txn_not_found', startTs: 10, primary: 'k' })
  expect(failure(check(stalePrewritten, { verifyIsPrimary: true }))).toEqual({
    code: 'primary_mismatch',
    lock: lockInfoOf('k', 10),
  })
})
