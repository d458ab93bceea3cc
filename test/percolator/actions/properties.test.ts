import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { acquirePessimisticLock } from '../../../src/percolator/actions/acquire-pessimistic-lock.js'
import { checkSecondaryLock } from '../../../src/percolator/actions/check-secondary-locks.js'
import { checkTxnStatus } from '../../../src/percolator/actions/check-txn-status.js'
import { cleanup } from '../../../src/percolator/actions/cleanup.js'
import { commit } from '../../../src/percolator/actions/commit.js'
import { prewrite, prewriteDepth } from '../../../src/percolator/actions/prewrite.js'
import { resolveLock } from '../../../src/percolator/actions/resolve-lock.js'
import { rollback } from '../../../src/percolator/actions/rollback.js'
import { txnHeartBeat } from '../../../src/percolator/actions/txn-heart-beat.js'
import type { CheckTxnStatusRequest, PrewriteRequest, TxnHeartBeatRequest } from '../../../src/percolator/api.js'
import type { Lock } from '../../../src/percolator/lock.js'
import {
  endsHistory,
  type HistoryDepth,
  type Mutation,
  type Outcome,
  type RowView,
} from '../../../src/percolator/row.js'
import type { WriteRecord } from '../../../src/percolator/write.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import {
  applyTo,
  bytes,
  changes,
  deleteAt,
  describeWrite,
  KEY,
  lockAt,
  lockRecordAt,
  ms,
  overlapped,
  PRIMARY,
  protectedRollbackAt,
  putAt,
  rollbackAt,
  summary,
} from '../builders.js'

/** The transaction that every request is about. Other transactions lie at 1 to 40, on both sides of it. */
const OWN = 20
/** Above `forUpdateTs` of every request: a commit always is. */
const OWN_COMMIT = fc.integer({ min: 31, max: 45 })

const flag = fc.boolean()
const otherTs = fc.integer({ min: 1, max: 40 }).filter((ts) => ts !== OWN)

/** A record of another transaction; its commit may be at just the start of ours. */
const otherRecord: fc.Arbitrary<WriteRecord> = fc.oneof(
  fc
    .tuple(fc.constantFrom(putAt, deleteAt, lockRecordAt), otherTs, fc.integer({ min: 1, max: 12 }), flag)
    .map(([recordAt, startTs, later, isFlagged]) => {
      const write = recordAt(startTs, startTs + later)
      return isFlagged ? overlapped(write) : write
    }),
  fc
    .tuple(fc.constantFrom(putAt, deleteAt), fc.integer({ min: 1, max: 19 }), flag)
    .map(([recordAt, startTs, isFlagged]) => {
      const write = recordAt(startTs, OWN)
      return isFlagged ? overlapped(write) : write
    }),
  fc.tuple(fc.constantFrom(rollbackAt, protectedRollbackAt), otherTs).map(([recordAt, startTs]) => recordAt(startTs)),
)
const ownRecord: fc.Arbitrary<WriteRecord> = fc.oneof(
  fc
    .tuple(fc.constantFrom(putAt, deleteAt, lockRecordAt), OWN_COMMIT)
    .map(([recordAt, commitTs]) => recordAt(OWN, commitTs)),
  fc.constantFrom(rollbackAt, protectedRollbackAt).map((recordAt) => recordAt(OWN)),
)

const lockOf = (startTs: fc.Arbitrary<number>, primary: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Lock> =>
  fc
    .record({
      type: fc.constantFrom('put', 'delete', 'lock', 'pessimistic'),
      startTs,
      primary,
      isShort: flag,
      minCommitTs: fc.constantFrom(0, 15, 21, 33),
      useAsyncCommit: flag,
      rollbackTs: fc.constantFrom<number[]>([], [35]),
    } as const)
    .map(({ type, startTs, primary, isShort, minCommitTs, useAsyncCommit, rollbackTs }) =>
      lockAt(startTs, {
        type,
        primary,
        shortValue: type === 'put' && isShort ? bytes('v') : undefined,
        forUpdateTs: type === 'pessimistic' ? startTs : 0,
        minCommitTs,
        useAsyncCommit: type !== 'pessimistic' && useAsyncCommit,
        rollbackTs,
      }),
    )

interface RowChoices {
  readonly key?: Uint8Array
  /** Of our own lock. */
  readonly primary?: fc.Arbitrary<Uint8Array>
}

/** A row as the protocol can leave it: one record a commitTs and a transaction; our lock or our record, never both. */
function rows({ key = KEY, primary = fc.constantFrom(KEY, PRIMARY) }: RowChoices = {}): fc.Arbitrary<RowView> {
  const own = fc.oneof(
    fc.constant({}),
    lockOf(fc.constant(OWN), primary).map((lock) => ({ lock })),
    ownRecord.map((write) => ({ write })),
  )
  const foreign = fc.option(lockOf(fc.integer({ min: 41, max: 50 }), fc.constant(PRIMARY)), { nil: undefined, freq: 2 })
  return fc.tuple(fc.array(otherRecord, { maxLength: 6 }), own, foreign).map(([others, ours, foreignLock]) => {
    const writes: WriteRecord[] = 'write' in ours ? [ours.write] : []
    for (const write of others) {
      if (writes.some(({ startTs, commitTs }) => startTs === write.startTs || commitTs === write.commitTs)) continue
      writes.push(write)
    }
    writes.sort((a, b) => b.commitTs - a.commitTs)
    return { key, lock: 'lock' in ours ? ours.lock : foreignLock, writes }
  })
}

/** An action with its request filled in, and how much of the row it says it needs. */
interface Call {
  readonly run: (row: RowView) => Outcome<unknown>
  readonly depth: (row: RowView) => HistoryDepth
  /** For the report of a counterexample. */
  readonly [fc.toStringMethod]: () => string
}

function call(name: string, request: unknown, run: Call['run'], depth: Call['depth'] = () => 'txn'): Call {
  return { run, depth, [fc.toStringMethod]: () => `${name} ${JSON.stringify(request)}` }
}

const commitTs = fc.integer({ min: 33, max: 40 })
const statusRequests = fc
  .record({
    callerStartTs: fc.constantFrom(0, 15, 25, TIMESTAMP_MAX),
    currentTs: fc.constantFrom(25, ms(500)),
    rollbackIfNotExist: flag,
    forceSyncCommit: flag,
    resolvingPessimisticLock: flag,
    verifyIsPrimary: flag,
  })
  .map((more): CheckTxnStatusRequest => ({ primary: KEY, lockTs: OWN, ...more }))
const heartBeats = fc
  .record({ adviseLockTtl: fc.constantFrom(50, 100, 200), minCommitTs: fc.constantFrom(undefined, 0, 14, 34) })
  .map((more): TxnHeartBeatRequest => ({ primary: KEY, startTs: OWN, ...more }))

const actions: { name: string; calls: fc.Arbitrary<Call>; choices?: RowChoices; mayEndRefused?: boolean }[] = [
  {
    name: 'commit',
    calls: commitTs.map((at) =>
      call(
        'commit',
        at,
        (row) => commit(row, { startTs: OWN, commitTs: at }),
        (row) => (row.lock?.startTs === OWN ? 'none' : 'txn'),
      ),
    ),
    mayEndRefused: true, // A pessimistic lock is gone after the first commit, and no record says so.
  },
  { name: 'rollback', calls: fc.constant(call('rollback', OWN, (row) => rollback(row, OWN))) },
  {
    name: 'cleanup',
    calls: fc
      .constantFrom(0, 25, ms(500))
      .map((currentTs) => call('cleanup', currentTs, (row) => cleanup(row, OWN, currentTs))),
    choices: { primary: fc.constant(KEY) },
  },
  {
    name: 'check_txn_status',
    calls: statusRequests.map((request) => call('check_txn_status', request, (row) => checkTxnStatus(row, request))),
    choices: { primary: fc.constant(KEY) },
    mayEndRefused: true, // A pessimistic rollback leaves no trace, so the next answer is `txn_not_found`.
  },
  {
    name: 'check_secondary_locks',
    calls: fc.constant(call('check_secondary_locks', OWN, (row) => checkSecondaryLock(row, OWN))),
  },
  {
    name: 'txn_heart_beat',
    calls: heartBeats.map((request) =>
      call(
        'txn_heart_beat',
        request,
        (row) => txnHeartBeat(row, request),
        () => 'none',
      ),
    ),
  },
  {
    name: 'resolve_lock',
    calls: fc
      .tuple(fc.oneof(fc.constant(0), commitTs), flag)
      .map(([at, isNamed]) => call('resolve_lock', [at, isNamed], (row) => resolveLock(row, OWN, at, isNamed))),
    mayEndRefused: true, // As commit.
  },
]

/** The row with its history cut where a store may stop reading. */
function cut(row: RowView, depth: HistoryDepth): RowView {
  if (depth === 'none') return { ...row, writes: [] }
  const last = row.writes.findIndex((write) => endsHistory(write, OWN, depth))
  return last === -1 ? row : { ...row, writes: row.writes.slice(0, last + 1) }
}

/** Commits of other transactions, without the flags that a rollback may add. */
const othersCommits = (row: RowView): string[] =>
  row.writes
    .filter((write) => write.startTs !== OWN && write.type !== 'rollback')
    .map((write) => describeWrite({ ...write, hasOverlappedRollback: false }))

for (const { name, calls, choices, mayEndRefused = false } of actions) {
  describe(name, () => {
    test('again: accepted, and nothing changes', () => {
      fc.assert(
        fc.property(rows(choices), calls, (row, { run }) => {
          const first = run(row)
          if (!first.ok) return
          const again = run(applyTo(row, first.mutations))
          if (!again.ok && mayEndRefused) return
          expect(summary(again)).toBe('no mutations')
        }),
        { numRuns: 1000 },
      )
    })

    test('decides by no more history than it asks for', () => {
      fc.assert(
        fc.property(rows(choices), calls, (row, { run, depth }) => {
          expect(run(cut(row, depth(row)))).toEqual(run(row))
        }),
        { numRuns: 500 },
      )
    })

    test('never touches the commit or removes the lock of another transaction', () => {
      fc.assert(
        fc.property(rows(choices), calls, (row, { run }) => {
          const outcome = run(row)
          if (!outcome.ok) return
          const after = applyTo(row, outcome.mutations)
          // A commit at a timestamp where another stands can't happen: the oracle hands out each one once.
          const lost = othersCommits(row).filter((write) => !othersCommits(after).includes(write))
          const taken = after.writes.filter((write) => write.startTs === OWN).map((write) => `..${write.commitTs}`)
          expect(lost.filter((write) => !taken.some((end) => write.endsWith(end)))).toEqual([])
          if (row.lock !== undefined && row.lock.startTs !== OWN) expect(after.lock?.startTs).toBe(row.lock.startTs)
        }),
        { numRuns: 500 },
      )
    })
  })
}

describe('prewrite of two keys', () => {
  const CONTEXT = { maxTs: 46, shortValueBytesMax: 255 }
  const [A, B] = [bytes('a'), bytes('b')]
  const mutation = fc.record({
    op: fc.constantFrom('put', 'delete', 'lock', 'insert', 'check_not_exists'),
    isLong: flag,
    assertion: fc.constantFrom(undefined, undefined, 'exist', 'not_exist'),
    action: fc.constantFrom('skip', 'do', 'constraint'),
  } as const)
  const requests = fc
    .record({
      mutations: fc.tuple(mutation, mutation),
      forUpdateTs: fc.constantFrom(0, 0, 20, 30),
      kind: fc.constantFrom('two_pc', 'async', 'one_pc'),
      maxCommitTs: fc.constantFrom(0, 46, 60),
      minCommitTs: fc.constantFrom(0, 21, 50),
      skipConstraintCheck: flag,
    } as const)
    .map(({ mutations, forUpdateTs, kind, maxCommitTs, minCommitTs, skipConstraintCheck }): PrewriteRequest => {
      const isPessimistic = forUpdateTs !== 0
      return {
        mutations: mutations.map(({ op, isLong, assertion }, i) => ({
          op: isPessimistic && op === 'check_not_exists' ? 'put' : op,
          key: i === 0 ? A : B,
          ...(op === 'delete' || op === 'lock' ? {} : { value: Buffer.alloc(isLong ? 256 : 3, 'x') }),
          assertion,
        })),
        primary: A,
        startTs: OWN,
        lockTtl: 3000,
        forUpdateTs,
        ...(isPessimistic ? { pessimisticActions: mutations.map(({ action }) => action) } : {}),
        useAsyncCommit: kind === 'async',
        secondaries: kind === 'async' ? [B] : [],
        tryOnePc: kind === 'one_pc',
        maxCommitTs,
        minCommitTs,
        skipConstraintCheck,
      }
    })
  const twoRows = fc.tuple(rows({ key: A, primary: fc.constant(A) }), rows({ key: B, primary: fc.constant(A) }))
  const applyAll = (before: readonly RowView[], mutations: readonly Mutation[]): RowView[] =>
    before.map((row) => applyTo(row, mutations))

  test('again: accepted, and nothing changes', { tags: ['long'] }, () => {
    fc.assert(
      fc.property(twoRows, requests, (before, request) => {
        const first = prewrite(before, request, CONTEXT)
        if (!first.ok) return
        const again = prewrite(applyAll(before, first.mutations), request, CONTEXT)
        expect(summary(again)).toBe('no mutations')
        if (again.ok) expect(again.value).toEqual(first.value)
      }),
      { numRuns: 3000 },
    )
  })

  test('again, after more reads: the same 1PC commit', () => {
    fc.assert(
      fc.property(twoRows, requests, (before, request) => {
        const first = prewrite(before, request, CONTEXT)
        if (!first.ok || !first.mutations.some(({ type }) => type === 'put-write')) return
        const again = prewrite(applyAll(before, first.mutations), request, { ...CONTEXT, maxTs: 90 })
        expect(again).toEqual({ ok: true, value: first.value, mutations: [] })
      }),
      { numRuns: 1000 },
    )
  })

  test('decides by no more history than it asks for', { tags: ['long'] }, () => {
    fc.assert(
      fc.property(twoRows, requests, (before, request) => {
        const shallow = before.map((row, i) => cut(row, prewriteDepth(request.mutations[i] ?? { op: 'put', key: A })))
        const [deep, cutShort] = [prewrite(before, request, CONTEXT), prewrite(shallow, request, CONTEXT)]
        expect(summary(cutShort)).toBe(summary(deep))
        if (deep.ok && cutShort.ok) expect(cutShort.value).toEqual(deep.value)
      }),
      { numRuns: 2000 },
    )
  })

  test('a commit by lock and one by 1PC decide alike: a lock for each record', () => {
    fc.assert(
      fc.property(twoRows, requests, (before, request) => {
        const plain = prewrite(before, { ...request, tryOnePc: false, useAsyncCommit: false }, CONTEXT)
        const onePc = prewrite(before, { ...request, tryOnePc: true, maxCommitTs: 0 }, CONTEXT)
        expect(onePc.ok).toBe(plain.ok)
        if (!onePc.ok || !plain.ok) return
        const keysOf = (mutations: readonly Mutation[]): string[] =>
          mutations
            .filter(({ type }) => type === 'put-lock' || type === 'put-write')
            .map(({ key }) => changes([{ type: 'delete-lock', key }]))
        expect(keysOf(onePc.mutations)).toEqual(keysOf(plain.mutations))
      }),
      { numRuns: 1000 },
    )
  })

  test('never locks a key that this transaction committed, nor one that another holds', () => {
    fc.assert(
      fc.property(twoRows, requests, (before, request) => {
        const outcome = prewrite(before, request, CONTEXT)
        if (!outcome.ok) return
        for (const row of before) {
          const touched = outcome.mutations.some(({ key }) => Buffer.compare(key, row.key) === 0)
          const isCommitted = row.writes.some(({ startTs, type }) => startTs === OWN && type !== 'rollback')
          if (isCommitted || (row.lock !== undefined && row.lock.startTs !== OWN)) expect(touched).toBe(false)
        }
      }),
      { numRuns: 2000 },
    )
  })

  test('a rolled-back transaction never gets a lock by a late prewrite, whatever checks that one skips', () => {
    fc.assert(
      fc.property(twoRows, requests, ([a, b], request) => {
        if (a.lock !== undefined) return
        const rolledBack = cleanup(a, OWN, 0)
        if (!rolledBack.ok) return
        const outcome = prewrite([applyTo(a, rolledBack.mutations), b], request, CONTEXT)
        if (outcome.ok) expect(changes(outcome.mutations)).toBe('no mutations') // Committed before, on `b`.
      }),
      { numRuns: 3000 },
    )
  })

  test('nor by a late pessimistic lock', () => {
    const lockRequests = fc
      .record({
        forUpdateTs: fc.integer({ min: 15, max: 45 }),
        insert: flag,
        lockOnlyIfExists: flag,
        wakeUpMode: fc.constantFrom('normal', 'force_lock'),
      } as const)
      .map((more) => ({ keys: [A], primary: A, startTs: OWN, lockTtl: 100, ...more }))
    fc.assert(
      fc.property(rows({ key: A, primary: fc.constant(A) }), lockRequests, (row, request) => {
        const rolledBack = row.lock === undefined ? cleanup(row, OWN, 0) : undefined
        if (!rolledBack?.ok) return
        const outcome = acquirePessimisticLock(applyTo(row, rolledBack.mutations), request)
        if (outcome.ok) expect(changes(outcome.mutations)).toBe('no mutations') // Not locked: there is no value.
      }),
      { numRuns: 2000 },
    )
  })
})
