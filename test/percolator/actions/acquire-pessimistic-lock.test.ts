import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type AcquiredKey, acquirePessimisticLock } from '../../../src/percolator/actions/acquire-pessimistic-lock.js'
import { commit } from '../../../src/percolator/actions/commit.js'
import { pessimisticRollback } from '../../../src/percolator/actions/pessimistic-rollback.js'
import { prewrite } from '../../../src/percolator/actions/prewrite.js'
import { rollback } from '../../../src/percolator/actions/rollback.js'
import type { AcquirePessimisticLockRequest, PrewriteRequest } from '../../../src/percolator/api.js'
import type { Lock } from '../../../src/percolator/lock.js'
import { endsHistory, type Outcome, type RowView } from '../../../src/percolator/row.js'
import type { WriteRecord } from '../../../src/percolator/write.js'
import {
  applyTo,
  asyncAt,
  bytes,
  changes,
  deleteAt,
  describeWrite,
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
  rollbackAt,
  rowOf,
  summary,
} from '../builders.js'

type RequestParts = Partial<AcquirePessimisticLockRequest>

function requestAt(startTs: number, forUpdateTs: number, more: RequestParts = {}): AcquirePessimisticLockRequest {
  return { keys: [KEY], primary: PRIMARY, startTs, forUpdateTs, lockTtl: 100, ...more }
}

/** `read put 3..5`, `read nothing`; before it `at 30` when locked with conflict; `unlocked` when not locked. */
function describeAnswer({ version, isLocked, lockedWithConflictTs }: AcquiredKey): string {
  const conflict = lockedWithConflictTs === undefined ? '' : `at ${lockedWithConflictTs}, `
  const read = version === undefined ? 'nothing' : describeWrite(version)
  return `${conflict}read ${read}${isLocked ? '' : ', unlocked'}`
}

/** The answer, then what is written: `+lock <startTs>@<forUpdateTs>`, or nothing. */
function describeOutcome(outcome: Outcome<AcquiredKey>): string {
  if (!outcome.ok) return summary(outcome)
  const written = outcome.mutations.map((mutation) =>
    mutation.type === 'put-lock' && mutation.lock.type === 'pessimistic'
      ? ` +lock ${mutation.lock.startTs}@${mutation.lock.forUpdateTs}`
      : ` ${changes([mutation])}`,
  )
  return `${describeAnswer(outcome.value)};${written.join()}`
}

interface Case {
  readonly name: string
  readonly row?: RowParts
  readonly request?: RequestParts
  readonly want: string
}

/** Each by a transaction that started at 10 and reads for update at 20. */
function table(title: string, cases: readonly Case[], always: RequestParts = {}): void {
  describe(title, () => {
    for (const { name, row = {}, request, want } of cases)
      test(name, () => {
        const outcome = acquirePessimisticLock(rowOf(row), requestAt(10, 20, { ...always, ...request }))
        expect(describeOutcome(outcome)).toBe(want)
      })
  })
}

const CONFLICT = 'write_conflict pessimistic_retry'
const ROLLED_BACK = 'pessimistic_lock_rolled_back'
const insert: RequestParts = { insert: true }
const onlyIfExists: RequestParts = { lockOnlyIfExists: true, returnValues: true }

table('a key that nobody locks', [
  { name: 'a row that never was', want: 'read nothing; +lock 10@20' },
  { name: 'a put before the start', row: { writes: [putAt(3, 5)] }, want: 'read put 3..5; +lock 10@20' },
  { name: 'a put after the start', row: { writes: [putAt(12, 13)] }, want: 'read put 12..13; +lock 10@20' },
  { name: 'a put at just for_update_ts', row: { writes: [putAt(12, 20)] }, want: 'read put 12..20; +lock 10@20' },
  { name: 'a put just above it', row: { writes: [putAt(12, 21)] }, want: CONFLICT },
  { name: 'a delete above it', row: { writes: [deleteAt(12, 21)] }, want: CONFLICT },
  { name: 'a Lock record above it', row: { writes: [lockRecordAt(12, 21), putAt(3, 5)] }, want: CONFLICT },
  { name: 'a rollback above it', row: { writes: [rollbackAt(21), putAt(3, 5)] }, want: CONFLICT },
  { name: 'a delete', row: { writes: [deleteAt(6, 7), putAt(3, 5)] }, want: 'read nothing; +lock 10@20' },
  {
    name: 'Lock and Rollback records are read past',
    row: { writes: [rollbackAt(18), lockRecordAt(12, 17), putAt(3, 5)] },
    want: 'read put 3..5; +lock 10@20',
  },
  {
    name: 'to a delete, too',
    row: { writes: [rollbackAt(18), deleteAt(6, 7), putAt(3, 5)] },
    want: 'read nothing; +lock 10@20',
  },
  { name: 'own rollback', row: { writes: [rollbackAt(10)] }, want: ROLLED_BACK },
  { name: 'own protected rollback', row: { writes: [protectedRollbackAt(10)] }, want: ROLLED_BACK },
  { name: 'own rollback as a flag', row: { writes: [overlapped(putAt(3, 10))] }, want: ROLLED_BACK },
  { name: 'own rollback below a commit', row: { writes: [putAt(12, 13), rollbackAt(10)] }, want: ROLLED_BACK },
  {
    name: 'own rollback as a flag, below commits',
    row: { writes: [putAt(14, 15), rollbackAt(13), overlapped(lockRecordAt(3, 10))] },
    want: ROLLED_BACK,
  },
  {
    name: 'own rollback below a commit above for_update_ts: the conflict, as it is met first',
    row: { writes: [putAt(12, 21), rollbackAt(10)] },
    want: CONFLICT,
  },
  {
    name: "another's commit at the start",
    row: { writes: [putAt(3, 10)] },
    want: 'read put 3..10; +lock 10@20',
  },
  {
    name: "another's rollback, as a flag elsewhere",
    row: { writes: [overlapped(putAt(3, 9))] },
    want: 'read put 3..9 overlapped; +lock 10@20',
  },
  { name: 'committed, above for_update_ts: a late repeat', row: { writes: [putAt(10, 30)] }, want: CONFLICT },
  {
    name: 'committed, below for_update_ts: a late repeat too; TiKV would lock again',
    row: { writes: [putAt(10, 15)] },
    want: CONFLICT,
  },
])

table('someone holds the key', [
  { name: "another's prewrite lock", row: { lock: lockAt(7) }, want: 'key_locked' },
  { name: 'an async-commit lock', row: { lock: asyncAt(7) }, want: 'key_locked' },
  { name: "another's pessimistic lock", row: { lock: pessimisticAt(7) }, want: 'key_locked' },
  { name: "a younger transaction's", row: { lock: pessimisticAt(12) }, want: 'key_locked' },
  { name: 'force_lock waits too', row: { lock: lockAt(7) }, request: { wakeUpMode: 'force_lock' }, want: 'key_locked' },
  {
    name: 'the lock comes before everything else',
    row: { lock: lockAt(7), writes: [putAt(12, 21), rollbackAt(10)] },
    request: insert,
    want: 'key_locked',
  },
  { name: 'own prewrite lock', row: { lock: lockAt(10) }, want: 'invalid_argument' },
  {
    name: 'own prewrite lock of a pessimistic transaction',
    row: { lock: lockAt(10, { type: 'delete', forUpdateTs: 20 }) },
    want: 'invalid_argument',
  },
])

const heldAt = (forUpdateTs: number, more: Partial<Lock> = {}): Lock => pessimisticAt(10, { forUpdateTs, ...more })

table('own pessimistic lock', [
  { name: 'again', row: { lock: heldAt(20), writes: [putAt(3, 5)] }, want: 'read put 3..5;' },
  { name: 'again: absent', row: { lock: heldAt(20), writes: [deleteAt(3, 5)] }, want: 'read nothing;' },
  { name: 'raised', row: { lock: heldAt(19), writes: [putAt(3, 5)] }, want: 'read put 3..5; +lock 10@20' },
  {
    name: 'raised past a version that was committed since the first try',
    row: { lock: heldAt(15), writes: [putAt(12, 15), putAt(3, 5)] },
    want: 'read put 12..15; +lock 10@20',
  },
  { name: 'never lowered', row: { lock: heldAt(21) }, want: 'read nothing;' },
  {
    name: 'at a lower for_update_ts: what a repeat of that request read',
    row: { lock: heldAt(30), writes: [putAt(24, 25), putAt(3, 5)] },
    want: 'read put 3..5;',
  },
  {
    name: 'even at one below the start',
    row: { lock: heldAt(30), writes: [deleteAt(6, 9), putAt(3, 5)] },
    request: { forUpdateTs: 8 },
    want: 'read put 3..5;',
  },
  {
    name: 'records that other requests left meanwhile are no conflict',
    row: { lock: heldAt(20), writes: [rollbackAt(25), putAt(3, 5)] },
    want: 'read put 3..5;',
  },
  {
    name: 'insert, absent',
    row: { lock: heldAt(20), writes: [deleteAt(3, 5)] },
    request: insert,
    want: 'read nothing;',
  },
  {
    name: 'insert, of a key locked before as existing',
    row: { lock: heldAt(20), writes: [lockRecordAt(6, 7), putAt(3, 5)] },
    request: insert,
    want: 'already_exists',
  },
  {
    name: 'insert: a refusal raises nothing',
    row: { lock: heldAt(15), writes: [putAt(3, 5)] },
    request: insert,
    want: 'already_exists',
  },
  {
    name: 'insert, below a version that it does not see',
    row: { lock: heldAt(30), writes: [putAt(24, 25)] },
    request: insert,
    want: 'read nothing;',
  },
  {
    name: 'lock_only_if_exists, absent: it is locked',
    row: { lock: heldAt(20) },
    request: onlyIfExists,
    want: 'read nothing;',
  },
  {
    name: 'lock_only_if_exists, absent, raised',
    row: { lock: heldAt(15) },
    request: onlyIfExists,
    want: 'read nothing; +lock 10@20',
  },
])

table(
  'own pessimistic lock, force_lock',
  [
    { name: 'again', row: { lock: heldAt(20), writes: [putAt(3, 5)] }, want: 'read put 3..5;' },
    { name: 'raised', row: { lock: heldAt(15), writes: [putAt(3, 5)] }, want: 'read put 3..5; +lock 10@20' },
    {
      name: 'again, after a conflict: the same answer',
      row: { lock: heldAt(25), writes: [putAt(24, 25), putAt(3, 5)] },
      want: 'at 25, read put 24..25;',
    },
    {
      name: 'at a lower for_update_ts: told that the lock stands higher',
      row: { lock: heldAt(30), writes: [putAt(3, 5)] },
      want: 'at 30, read put 3..5;',
    },
    {
      name: 'insert: exists since for_update_ts',
      row: { lock: heldAt(30), writes: [putAt(24, 25)] },
      request: insert,
      want: CONFLICT,
    },
    {
      name: 'insert: existed before',
      row: { lock: heldAt(30), writes: [putAt(3, 5)] },
      request: insert,
      want: 'already_exists',
    },
    {
      name: 'insert: existed at just for_update_ts',
      row: { lock: heldAt(30), writes: [putAt(3, 20)] },
      request: insert,
      want: 'already_exists',
    },
    {
      name: 'insert: absent',
      row: { lock: heldAt(30), writes: [deleteAt(24, 25), putAt(3, 5)] },
      request: insert,
      want: 'at 30, read nothing;',
    },
  ],
  { wakeUpMode: 'force_lock' },
)

table('insert', [
  { name: 'a row that never was', request: insert, want: 'read nothing; +lock 10@20' },
  {
    name: 'deleted',
    row: { writes: [deleteAt(6, 7), putAt(3, 5)] },
    request: insert,
    want: 'read nothing; +lock 10@20',
  },
  { name: 'exists', row: { writes: [putAt(3, 5)] }, request: insert, want: 'already_exists' },
  { name: 'exists since the start', row: { writes: [putAt(12, 13)] }, request: insert, want: 'already_exists' },
  {
    name: 'exists, below other records',
    row: { writes: [rollbackAt(15), lockRecordAt(6, 7), putAt(3, 5)] },
    request: insert,
    want: 'already_exists',
  },
  {
    name: 'only a Lock record',
    row: { writes: [lockRecordAt(3, 5)] },
    request: insert,
    want: 'read nothing; +lock 10@20',
  },
  { name: 'exists above for_update_ts', row: { writes: [putAt(12, 21)] }, request: insert, want: CONFLICT },
  {
    name: 'own rollback, and exists',
    row: { writes: [rollbackAt(10), putAt(3, 5)] },
    request: insert,
    want: ROLLED_BACK,
  },
])

table(
  'lock_only_if_exists',
  [
    { name: 'a row that never was', want: 'read nothing, unlocked;' },
    { name: 'deleted', row: { writes: [deleteAt(6, 7), putAt(3, 5)] }, want: 'read nothing, unlocked;' },
    { name: 'only a Lock record', row: { writes: [lockRecordAt(3, 5)] }, want: 'read nothing, unlocked;' },
    { name: 'exists', row: { writes: [putAt(3, 5)] }, want: 'read put 3..5; +lock 10@20' },
    {
      name: 'exists, below a rollback',
      row: { writes: [rollbackAt(15), putAt(3, 5)] },
      want: 'read put 3..5; +lock 10@20',
    },
    { name: 'deleted above for_update_ts', row: { writes: [deleteAt(12, 21)] }, want: CONFLICT },
    { name: 'absent, own rollback', row: { writes: [rollbackAt(10)] }, want: ROLLED_BACK },
    { name: 'with insert: absent', request: insert, want: 'read nothing, unlocked;' },
    { name: 'with insert: exists', row: { writes: [putAt(3, 5)] }, request: insert, want: 'already_exists' },
  ],
  onlyIfExists,
)

table(
  'force_lock',
  [
    { name: 'no conflict', row: { writes: [putAt(3, 5)] }, want: 'read put 3..5; +lock 10@20' },
    { name: 'at just for_update_ts', row: { writes: [putAt(3, 20)] }, want: 'read put 3..20; +lock 10@20' },
    { name: 'a put', row: { writes: [putAt(12, 21), putAt(3, 5)] }, want: 'at 21, read put 12..21; +lock 10@21' },
    { name: 'a delete', row: { writes: [deleteAt(12, 21), putAt(3, 5)] }, want: 'at 21, read nothing; +lock 10@21' },
    {
      name: 'a Lock record: locked at it, what lies below is read',
      row: { writes: [lockRecordAt(24, 25), putAt(12, 21)] },
      want: 'at 25, read put 12..21; +lock 10@25',
    },
    {
      name: 'a rollback: likewise',
      row: { writes: [rollbackAt(25), putAt(3, 5)] },
      want: 'at 25, read put 3..5; +lock 10@25',
    },
    { name: 'own rollback below the conflict', row: { writes: [putAt(12, 21), rollbackAt(10)] }, want: ROLLED_BACK },
    {
      name: 'own rollback as a flag below the conflict',
      row: { writes: [putAt(12, 21), overlapped(putAt(3, 10))] },
      want: ROLLED_BACK,
    },
    {
      name: 'own rollback is the conflict',
      row: { writes: [rollbackAt(10)] },
      request: { forUpdateTs: 9 },
      want: ROLLED_BACK,
    },
    { name: 'insert: exists by the conflict', row: { writes: [putAt(12, 21)] }, request: insert, want: CONFLICT },
    {
      name: 'insert: exists below the conflict',
      row: { writes: [lockRecordAt(12, 21), putAt(3, 5)] },
      request: insert,
      want: CONFLICT,
    },
    { name: 'insert: exists, no conflict', row: { writes: [putAt(3, 5)] }, request: insert, want: 'already_exists' },
    {
      name: 'insert: deleted by the conflict',
      row: { writes: [deleteAt(12, 21)] },
      request: insert,
      want: 'at 21, read nothing; +lock 10@21',
    },
    {
      name: 'lock_only_if_exists: exists',
      row: { writes: [putAt(12, 21)] },
      request: onlyIfExists,
      want: 'at 21, read put 12..21; +lock 10@21',
    },
    {
      name: 'lock_only_if_exists: deleted by the conflict',
      row: { writes: [deleteAt(12, 21)] },
      request: onlyIfExists,
      want: CONFLICT,
    },
    { name: 'lock_only_if_exists: absent, no conflict', request: onlyIfExists, want: 'read nothing, unlocked;' },
    {
      name: 'committed: a late repeat; TiKV would lock again',
      row: { writes: [putAt(10, 30)] },
      want: CONFLICT,
    },
  ],
  { wakeUpMode: 'force_lock' },
)

describe('the lock that is written', () => {
  const lockIn = (row: RowView, request: AcquirePessimisticLockRequest): Lock | undefined =>
    applyTo(row, mustSucceed(acquirePessimisticLock(row, request)).mutations).lock

  test('a new one', () =>
    expect(lockIn(rowOf(), requestAt(10, 20, { lockTtl: 3000 }))).toEqual({
      type: 'pessimistic',
      primary: PRIMARY,
      startTs: 10,
      ttlMs: 3000,
      shortValue: undefined,
      expireTs: 0,
      leaseFence: 0,
      forUpdateTs: 20,
      txnSize: 0,
      minCommitTs: 0,
      useAsyncCommit: false,
      secondaries: [],
      rollbackTs: [],
    }))

  const held = heldAt(20, { ttlMs: 500, minCommitTs: 60, primary: bytes('q'), rollbackTs: [40] })
  const again = (forUpdateTs: number, lockTtl: number): Lock | undefined =>
    lockIn(rowOf({ lock: held }), requestAt(10, forUpdateTs, { lockTtl }))

  test('a raised for_update_ts brings its primary along; TTL and min_commit_ts stay', () =>
    expect(again(30, 100)).toEqual({ ...held, forUpdateTs: 30, primary: PRIMARY }))
  test('a raised TTL alone', () => expect(again(20, 501)).toEqual({ ...held, ttlMs: 501 }))
  test('a raised TTL of a request with a lower for_update_ts', () =>
    expect(again(15, 501)).toEqual({ ...held, ttlMs: 501 }))
  test('nothing raised', () => expect(again(20, 500)).toBe(held))
})

describe('the fields of each error', () => {
  const refusal = (row: RowParts, more: RequestParts = {}): unknown =>
    failure(acquirePessimisticLock(rowOf(row), requestAt(10, 20, more)))
  const conflict = {
    code: 'write_conflict',
    key: 'k',
    startTs: 10,
    conflictStartTs: 12,
    conflictCommitTs: 21,
    primary: 'p',
    reason: 'pessimistic_retry',
  }

  test('key_locked', () =>
    expect(refusal({ lock: lockAt(7, { ttlMs: 5 }) })).toEqual({
      code: 'key_locked',
      key: 'k',
      lock: lockInfoOf('k', 7, { ttl: 5 }),
    }))
  test('write_conflict: the newest record', () =>
    expect(refusal({ writes: [lockRecordAt(12, 21), putAt(3, 5)] })).toEqual(conflict))
  test('write_conflict of a forced insert: the newest record, not the value below it', () =>
    expect(refusal({ writes: [lockRecordAt(12, 21), putAt(3, 5)] }, { ...insert, wakeUpMode: 'force_lock' })).toEqual(
      conflict,
    ))
  test('write_conflict of a forced insert that holds the lock: the value', () =>
    expect(
      refusal({ lock: heldAt(30), writes: [rollbackAt(25), putAt(12, 21)] }, { ...insert, wakeUpMode: 'force_lock' }),
    ).toEqual(conflict))
  test('already_exists', () =>
    expect(refusal({ writes: [putAt(3, 5)] }, insert)).toEqual({ code: 'already_exists', key: 'k' }))
  test('pessimistic_lock_rolled_back', () =>
    expect(refusal({ writes: [rollbackAt(10)] })).toEqual({ code: ROLLED_BACK, key: 'k', startTs: 10 }))
  test('invalid_argument', () =>
    expect(refusal({ lock: lockAt(10) })).toEqual({ code: 'invalid_argument', field: 'for_update_ts' }))
})

/** Ours in the properties below; others lie at 1 to 40, on both sides of it. */
const OWN = 20
const flag = fc.boolean()

const otherRecord: fc.Arbitrary<WriteRecord> = fc
  .tuple(
    fc.constantFrom(putAt, putAt, deleteAt, lockRecordAt, rollbackAt, protectedRollbackAt),
    fc.integer({ min: 1, max: 40 }).filter((ts) => ts !== OWN),
    fc.integer({ min: 1, max: 12 }),
    flag,
  )
  .map(([recordAt, startTs, later, isFlagged]) => {
    const write = recordAt(startTs, startTs + later)
    return isFlagged && write.type !== 'rollback' ? overlapped(write) : write
  })
const ownRecord = fc.constantFrom(rollbackAt(OWN), protectedRollbackAt(OWN), putAt(OWN, 33), deleteAt(OWN, 25))

/** Free, or locked by us without a record of ours, or by another. */
const rows: fc.Arbitrary<RowView> = fc
  .record({
    others: fc.array(otherRecord, { maxLength: 6 }),
    own: fc.option(ownRecord, { nil: undefined }),
    holder: fc.constantFrom(undefined, undefined, OWN, OWN, 15, 41),
    lock: fc.record({
      type: fc.constantFrom('pessimistic', 'pessimistic', 'put'),
      forUpdateTs: fc.integer({ min: 15, max: 40 }),
      ttlMs: fc.constantFrom(50, 200),
      minCommitTs: fc.constantFrom(0, 34),
    } as const),
  })
  .map(({ others, own, holder, lock }) => {
    const writes: WriteRecord[] = own !== undefined && holder !== OWN ? [own] : []
    for (const write of others)
      if (!writes.some(({ startTs, commitTs }) => startTs === write.startTs || commitTs === write.commitTs))
        writes.push(write)
    writes.sort((a, b) => b.commitTs - a.commitTs)
    return rowOf({ ...(holder === undefined ? {} : { lock: lockAt(holder, lock) }), writes })
  })
const requests = fc
  .record({
    forUpdateTs: fc.integer({ min: 15, max: 45 }),
    lockTtl: fc.constantFrom(50, 100, 300),
    insert: flag,
    lockOnlyIfExists: flag,
    wakeUpMode: fc.constantFrom(undefined, 'normal', 'force_lock'),
  } as const)
  .map(({ forUpdateTs, ...more }) => requestAt(OWN, forUpdateTs, more))

/** Checks what holds of a success, and of the row after it. */
function afterSuccess(
  check: (row: RowView, request: AcquirePessimisticLockRequest, value: AcquiredKey, after: RowView) => void,
): void {
  fc.assert(
    fc.property(rows, requests, (row, request) => {
      const outcome = acquirePessimisticLock(row, request)
      if (outcome.ok) check(row, request, outcome.value, applyTo(row, outcome.mutations))
    }),
    { numRuns: 3000 },
  )
}

function prewriteRequest(startTs: number, forUpdateTs: number): PrewriteRequest {
  return {
    mutations: [{ op: 'put', key: KEY, value: bytes('w') }],
    primary: PRIMARY,
    startTs,
    lockTtl: 100,
    forUpdateTs,
    pessimisticActions: ['do'],
  }
}
const CONTEXT = { maxTs: 50, shortValueBytesMax: 255 }

describe('whatever the row and the request', () => {
  test('again: the same answer, and nothing changes', () =>
    afterSuccess((_row, request, value, after) =>
      expect(acquirePessimisticLock(after, request)).toEqual({ ok: true, value, mutations: [] }),
    ))

  test('at most one mutation: the lock of this transaction, in place of none or its own', () =>
    fc.assert(
      fc.property(rows, requests, (row, request) => {
        const outcome = acquirePessimisticLock(row, request)
        if (!outcome.ok) return
        const isOwn = row.lock === undefined || row.lock.startTs === OWN
        expect(isOwn || !outcome.value.isLocked).toBe(true)
        expect(['no mutations', ...(isOwn ? ['+lock pessimistic 20'] : [])]).toContain(changes(outcome.mutations))
      }),
      { numRuns: 3000 },
    ))

  test("another transaction's lock is refused, and so is another transaction after a success", () =>
    fc.assert(
      fc.property(rows, requests, fc.constantFrom(15, 41), (row, request, otherTs) => {
        const outcome = acquirePessimisticLock(row, request)
        if (row.lock !== undefined && row.lock.startTs !== OWN) expect(summary(outcome)).toBe('key_locked')
        if (!outcome.ok || !outcome.value.isLocked) return
        const after = applyTo(row, outcome.mutations)
        expect(summary(acquirePessimisticLock(after, { ...request, startTs: otherTs, forUpdateTs: 60 }))).toBe(
          'key_locked',
        )
      }),
      { numRuns: 2000 },
    ))

  test('for_update_ts, TTL and min_commit_ts never fall, and cover what was asked for', () =>
    afterSuccess((row, request, value, after) => {
      expect(after.lock !== undefined).toBe(value.isLocked)
      if (after.lock === undefined) return
      expect(after.lock.forUpdateTs).toBeGreaterThanOrEqual(Math.max(request.forUpdateTs, row.lock?.forUpdateTs ?? 0))
      expect(after.lock.ttlMs).toBe(Math.max(request.lockTtl, row.lock?.ttlMs ?? 0))
      expect(after.lock.minCommitTs).toBe(row.lock?.minCommitTs ?? 0)
    }))

  test('a free key is locked above all its records, and its newest version read', () =>
    afterSuccess((row, request, { version, isLocked, lockedWithConflictTs }, after) => {
      if (row.lock !== undefined) return
      const data = row.writes.find(({ type }) => type === 'put' || type === 'delete')
      expect(version).toEqual(data?.type === 'put' ? data : undefined)
      expect(isLocked).toBe(!request.lockOnlyIfExists || version !== undefined)
      if (request.insert) expect(version).toBeUndefined()
      for (const { commitTs } of isLocked ? row.writes : [])
        expect(after.lock?.forUpdateTs).toBeGreaterThanOrEqual(commitTs)
      expect(lockedWithConflictTs).toBe(
        after.lock === undefined || after.lock.forUpdateTs === request.forUpdateTs ? undefined : after.lock.forUpdateTs,
      )
    }))

  test('a prewrite that counts on the lock succeeds', () =>
    afterSuccess((_row, request, { isLocked, lockedWithConflictTs }, after) => {
      if (!isLocked) return
      const forUpdateTs = lockedWithConflictTs ?? request.forUpdateTs
      expect(prewrite([after], prewriteRequest(OWN, forUpdateTs), CONTEXT).ok).toBe(true)
    }))

  test('a pessimistic rollback at where the lock stands takes it back', () =>
    afterSuccess((row, request, { lockedWithConflictTs }, after) => {
      const { mutations } = mustSucceed(pessimisticRollback(after, OWN, lockedWithConflictTs ?? request.forUpdateTs))
      if (row.lock === undefined) expect(applyTo(after, mutations)).toEqual(row)
    }))

  test('decides by no more history than it asks for', { tags: ['long'] }, () =>
    fc.assert(
      fc.property(rows, requests, (row, request) => {
        const ts = Math.min(request.startTs, request.forUpdateTs)
        const last = row.writes.findIndex((write) => endsHistory(write, ts, 'data'))
        const cut = last === -1 ? row : { ...row, writes: row.writes.slice(0, last + 1) }
        expect(acquirePessimisticLock(cut, request)).toEqual(acquirePessimisticLock(row, request))
      }),
      { numRuns: 3000 },
    ),
  )
})

/** One row of a store: every request is decided on it and written at once. */
function rowInMemory(parts: RowParts = {}) {
  let row = rowOf(parts)
  const write = (outcome: Outcome<unknown>): string => {
    if (outcome.ok) row = applyTo(row, outcome.mutations)
    return summary(outcome)
  }
  return {
    lock: (startTs: number, forUpdateTs: number, more?: RequestParts) =>
      write(acquirePessimisticLock(row, requestAt(startTs, forUpdateTs, more))),
    prewrite: (startTs: number, forUpdateTs: number) =>
      write(prewrite([row], prewriteRequest(startTs, forUpdateTs), CONTEXT)),
    commit: (startTs: number, commitTs: number) => write(commit(row, { startTs, commitTs })),
    rollback: (startTs: number) => write(rollback(row, startTs)),
    pessimisticRollback: (startTs: number, forUpdateTs: number) =>
      write(pessimisticRollback(row, startTs, forUpdateTs)),
    /** As a store that keeps pessimistic locks in memory only does when it restarts. */
    loseLock: () => {
      row = { ...row, lock: undefined }
    },
  }
}

describe('the life of a pessimistic transaction', () => {
  test('lock, prewrite, commit; then its late requests change nothing', () => {
    const row = rowInMemory({ writes: [putAt(3, 5)] })
    expect(row.lock(10, 10)).toBe('+lock pessimistic 10')
    expect(row.lock(12, 12)).toBe('key_locked')
    expect(row.lock(10, 14)).toBe('+lock pessimistic 10')
    expect(row.prewrite(10, 14)).toBe('+lock put 10')
    expect(row.lock(10, 14)).toBe('invalid_argument')
    expect(row.pessimisticRollback(10, 14)).toBe('no mutations')
    expect(row.commit(10, 16)).toBe('+put 10..16, -lock')
    expect(row.lock(10, 14)).toBe('write_conflict pessimistic_retry')
    expect(row.lock(12, 12)).toBe('write_conflict pessimistic_retry')
    expect(row.lock(12, 17)).toBe('+lock pessimistic 12')
  })

  test('a conflict is locked all the same: prewrite and commit above it', () => {
    const row = rowInMemory({ writes: [putAt(12, 15)] })
    expect(row.lock(10, 10)).toBe('write_conflict pessimistic_retry')
    expect(row.lock(10, 10, { wakeUpMode: 'force_lock' })).toBe('+lock pessimistic 10')
    expect(row.prewrite(10, 15)).toBe('+lock put 10')
    expect(row.commit(10, 16)).toBe('+put 10..16, -lock')
  })

  test('lock, pessimistic rollback; then another locks, and the first may come again', () => {
    const row = rowInMemory()
    expect(row.lock(10, 10)).toBe('+lock pessimistic 10')
    expect(row.pessimisticRollback(10, 9)).toBe('no mutations')
    expect(row.pessimisticRollback(10, 10)).toBe('-lock')
    expect(row.lock(12, 12)).toBe('+lock pessimistic 12')
    expect(row.pessimisticRollback(10, 20)).toBe('no mutations')
    expect(row.lock(10, 13)).toBe('key_locked')
    expect(row.pessimisticRollback(12, 12)).toBe('-lock')
    expect(row.lock(10, 13)).toBe('+lock pessimistic 10')
  })

  test('lock, rollback; a late lock is refused, whatever was written since', () => {
    const row = rowInMemory()
    expect(row.lock(10, 10)).toBe('+lock pessimistic 10')
    expect(row.rollback(10)).toBe('+rollback 10, -lock')
    expect(row.lock(10, 11)).toBe('pessimistic_lock_rolled_back')
    expect(row.lock(12, 12)).toBe('+lock pessimistic 12')
    expect(row.prewrite(12, 12)).toBe('+lock put 12')
    expect(row.commit(12, 13)).toBe('+put 12..13, -lock')
    expect(row.lock(10, 20)).toBe('pessimistic_lock_rolled_back')
    expect(row.lock(10, 11, { wakeUpMode: 'force_lock' })).toBe('pessimistic_lock_rolled_back')
  })

  test('the lock is lost and nobody wrote: the prewrite amends it', () => {
    const row = rowInMemory({ writes: [putAt(3, 5)] })
    expect(row.lock(10, 10)).toBe('+lock pessimistic 10')
    row.loseLock()
    expect(row.prewrite(10, 10)).toBe('+lock put 10')
    expect(row.commit(10, 11)).toBe('+put 10..11, -lock')
  })

  test('the lock is lost and another wrote: it cannot be amended', () => {
    const row = rowInMemory()
    expect(row.lock(10, 10)).toBe('+lock pessimistic 10')
    row.loseLock()
    expect(row.lock(12, 12)).toBe('+lock pessimistic 12')
    expect(row.prewrite(10, 10)).toBe('pessimistic_lock_not_found')
    expect(row.prewrite(12, 12)).toBe('+lock put 12')
    expect(row.commit(12, 13)).toBe('+put 12..13, -lock')
    expect(row.prewrite(10, 10)).toBe('pessimistic_lock_not_found')
  })
})
