import { LEASE_CHECKS_MAX, LOCK_WAIT_MS_MAX, LOCK_WAITS_SHOWN_MAX, TSO_COUNT_MAX } from '../../../limits.js'
import { TIMESTAMP_MAX } from '../../../timestamp.js'
import { answering } from './call-schema.js'
import { leaseCheck, prewriteRiders } from './riders.js'
import { Type } from './schema.js'
import {
  Bound,
  Count,
  described,
  ExpireTs,
  Flag,
  Key,
  LeaseFence,
  LockInfo,
  Milliseconds,
  Nothing,
  OptionalTimestamp,
  object,
  oneOf,
  optional,
  Pair,
  Timestamp,
  TimestampOrZero,
  Value,
} from './values.js'

/** The highest timestamp means "the latest version" in reads, so no record may have it. */
const belowMax = { maximum: TIMESTAMP_MAX - 1 }
const TimestampBelowMax = Type.Integer({ minimum: 1, ...belowMax })
/** Timestamps of records and locks: see written-timestamp.ts. */
const written = { ...belowMax, written: 'every' } as const
const WrittenTimestamp = Type.Integer({ minimum: 1, ...written })
const OptionalWrittenTimestamp = optional(Type.Integer({ minimum: 0, ...written, zeroIsAbsent: true }))
const WrittenTimestampOrZero = Type.Integer({ minimum: 0, ...written })

const ReadTimestamp = described(OptionalTimestamp, 'The snapshot to read. Default: the latest committed value.')
const Keys = Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax', distinct: 'items' })
const Locks = Type.Array(LockInfo)

export const tso = {
  body: object({
    count: described(optional(Type.Integer({ minimum: 1, maximum: TSO_COUNT_MAX })), 'Default: 1.'),
  }),
  ...answering(
    Type.Object({
      ts: described(Timestamp, 'The last of `count` consecutive timestamps that nobody else gets.'),
      count: Count,
      now: described(
        Timestamp,
        'Extension: the newest timestamp of the clock, by which the age of locks can be judged.',
      ),
    }),
  ),
}

export const get = {
  body: object({ key: Key, ts: ReadTimestamp }),
  ...answering(
    Type.Object({
      found: Type.Boolean(),
      value: optional(Value),
      commit_ts: optional(Timestamp),
      expire_ts: ExpireTs,
      lease_fence: LeaseFence,
    }),
  ),
}

export const batchGet = {
  body: object({ keys: Keys, ts: ReadTimestamp }),
  ...answering(Type.Object({ pairs: described(Type.Array(Pair), 'Without the absent keys.') })),
}

export const scan = {
  body: object({
    start: Bound,
    end: Bound,
    limit: described(
      Type.Integer({ minimum: 1, atMost: 'requestKeysMax' }),
      'A locked key counts: a scan that fills its limit before the first lock succeeds.',
    ),
    ts: described(Timestamp, 'The snapshot to read.'),
    reverse: described(Flag, 'From the end of the range, which stays `[start, end)`.'),
    key_only: described(Flag, 'No values.'),
  }),
  ...answering(Type.Object({ pairs: Type.Array(Pair) })),
}

const readSet = {
  keys: optional(Type.Array(Key, { atMost: 'requestKeysMax' })),
  ranges: optional(Type.Array(object({ start: Bound, end: Bound }), { atMost: 'requestKeysMax' })),
}

export const prewrite = {
  body: object({
    mutations: Type.Array(
      object({
        op: described(
          oneOf(['put', 'delete', 'lock', 'insert', 'check_not_exists']),
          '`insert` puts where there is no value. `check_not_exists` leaves no lock, and only checks.',
        ),
        key: Key,
        value: described(optional(Value), 'Of `put` and `insert`.'),
        expire_ts: described(
          OptionalTimestamp,
          'Of `put` and `insert`: the version is absent from this timestamp on. Default: it does not expire.',
        ),
        lease_fence: described(
          OptionalTimestamp,
          'Of `put` and `insert`: the end of the lease that has this fence deletes the key. It must be among `leases`.',
        ),
        keeps_lease: described(
          Flag,
          'Of `put`: if the version that it replaces is attached to a lease, this one is too. Does not go with `lease_fence`.',
        ),
        assertion: described(optional(oneOf(['exist', 'not_exist'])), 'Always checked: 409 `assertion_failed`.'),
      }),
      { atMost: 'requestKeysMax', distinct: 'key' },
    ),
    primary: described(
      optional(Key),
      'The key that decides. It may be outside of this request, but not with `try_one_pc`. Optional with riders and no mutations.',
    ),
    start_ts: WrittenTimestamp,
    lock_ttl: described(optional(Milliseconds), 'Counted from the time in `start_ts`. Default: 3000.'),
    txn_size: described(
      optional(Count),
      'The number of keys of the whole transaction, kept in the lock; 0: unknown. The change feed of a shared store relies on it.',
    ),
    min_commit_ts: described(
      OptionalWrittenTimestamp,
      'The least commit_ts. Without one nobody can push the lock past a reader.',
    ),
    max_commit_ts: described(
      OptionalTimestamp,
      'With `use_async_commit` or `try_one_pc`: past it, plain two-phase commit.',
    ),
    use_async_commit: described(
      Flag,
      'The transaction is committed once all its keys are prewritten. The primary lists the others in `secondaries`.',
    ),
    secondaries: optional(Type.Array(Key, { atMost: 'requestKeysMax', distinct: 'items' })),
    try_one_pc: described(Flag, 'All keys are here: commit at once, without locks. Wins over `use_async_commit`.'),
    for_update_ts: described(OptionalWrittenTimestamp, 'Of a pessimistic transaction.'),
    pessimistic_actions: described(
      optional(Type.Array(oneOf(['skip', 'do', 'constraint']), { atMost: 'requestKeysMax' })),
      'With `for_update_ts`, one per mutation. `do`: the transaction holds a pessimistic lock on the key. `skip`: it holds none, and nothing may have been written since `for_update_ts`. `constraint`: it holds none, and nothing may have been written since `start_ts`. Where a lock under `do` is gone and the key was written since `start_ts`: 409 `pessimistic_lock_not_found`.',
    ),
    for_update_ts_max: described(
      optional(Type.Array(TimestampBelowMax, { atMost: 'requestKeysMax' })),
      'Extension: a timestamp per mutation. A pessimistic lock above it is not the one that was granted, but a late copy of its request.',
    ),
    skip_constraint_check: described(Flag, 'Trusts the caller that nothing was written since `start_ts`.'),
    linearizable: described(
      Flag,
      'Extension, with async commit and 1PC: the commit_ts goes above every timestamp handed out so far.',
    ),
    reads: described(
      optional(object(readSet)),
      'Extension, with `try_one_pc`: the keys and ranges that the transaction read, which nobody else may have changed since.',
    ),
    riders: described(
      optional(object(prewriteRiders)),
      'Extension, with `try_one_pc` and without `max_commit_ts`. The run has seen `start_ts`, and `mutations` may be empty. Refused where an earlier prewrite of the transaction has left a lock.',
    ),
  }),
  ...answering(
    Type.Object({
      min_commit_ts: described(
        optional(Timestamp),
        'Under async commit: the highest of the locks of the request’s keys. Absent where one of them is not under async commit.',
      ),
      one_pc_commit_ts: described(optional(Timestamp), 'The transaction was committed in one phase, at this.'),
    }),
  ),
}

export const commit = {
  body: object({
    keys: Keys,
    start_ts: WrittenTimestamp,
    commit_ts: described(WrittenTimestamp, 'Above `start_ts`.'),
    primary: described(optional(Key), 'Accepted and not needed.'),
    txn_keys: described(
      optional(Keys),
      'Extension, with the primary, for the change feed of a shared store: all keys of the transaction, or those that `keys` lacks. If the two name fewer than the `txn_size` of the primary’s lock, or if neither `txn_size` nor `txn_keys` is given, the server looks for the others in the whole table.',
    ),
  }),
  ...answering(
    Type.Object({
      commit_ts: described(Timestamp, 'The one on record: that of an earlier commit of these keys if there was one.'),
    }),
  ),
}

export const rollback = { body: object({ keys: Keys, start_ts: WrittenTimestamp }), ...answering(Nothing) }

export const cleanup = {
  body: object({
    key: Key,
    start_ts: WrittenTimestamp,
    current_ts: described(
      TimestampOrZero,
      'The lock is over its TTL at this. 0: whatever its age. One in the future counts as the clock of the server.',
    ),
  }),
  ...answering(Nothing),
}

export const checkTxnStatus = {
  body: object({
    primary: Key,
    lock_ts: described(WrittenTimestamp, 'The `start_ts` of the transaction.'),
    // The lock's min_commit_ts is raised above it, except when it is the maximum (a read of the latest version).
    caller_start_ts: described(
      Type.Integer({ minimum: 0, maximum: TIMESTAMP_MAX, written: 'every_but_max' }),
      'A lock that has a `min_commit_ts` is pushed above this, so that the caller may read past it, unless this is in the future.',
    ),
    current_ts: described(
      TimestampOrZero,
      'A lock that is over its TTL at this is rolled back. One in the future counts as the clock of the server; 2^53 - 1 stands for any age.',
    ),
    rollback_if_not_exist: described(
      Flag,
      'Without lock and record: leaves a Rollback record, instead of 404 `txn_not_found`.',
    ),
    force_sync_commit: described(Flag, 'Also rolls a lock under async commit back.'),
    resolving_pessimistic_lock: described(
      Flag,
      'A pessimistic lock over its TTL is removed and leaves no record; its transaction may lock again.',
    ),
    verify_is_primary: described(Flag, '409 `primary_mismatch` where the key is not the primary of its lock.'),
  }),
  ...answering(
    Type.Object({
      status: oneOf(['locked', 'committed', 'rolled_back']),
      lock_ttl: described(Milliseconds, 'Of a lock that stands, otherwise 0.'),
      commit_ts: described(TimestampOrZero, '0 unless it is committed.'),
      action: described(
        oneOf([
          'no_action',
          'ttl_expire_rollback',
          'lock_not_exist_rollback',
          'min_commit_ts_pushed',
          'ttl_expire_pessimistic_rollback',
          'lock_not_exist_do_nothing',
        ]),
        'What this call did.',
      ),
      lock: described(optional(LockInfo), 'Where `status` is `locked`.'),
    }),
  ),
}

export const checkSecondaryLocks = {
  body: object({ keys: Keys, start_ts: WrittenTimestamp }),
  ...answering(
    Type.Object({
      locks: described(Locks, 'All of them when all are there; otherwise none.'),
      commit_ts: described(
        TimestampOrZero,
        'Of the first key without a lock. 0: it is not committed and never will be, because it has a Rollback record.',
      ),
    }),
  ),
}

export const txnHeartBeat = {
  body: object({
    primary: Key,
    start_ts: Timestamp,
    advise_lock_ttl: described(Milliseconds, 'Counted from `start_ts`. The TTL is never lowered.'),
    min_commit_ts: described(
      OptionalWrittenTimestamp,
      'That of the lock is raised to this, but not under async commit.',
    ),
  }),
  ...answering(Type.Object({ lock_ttl: Milliseconds })),
}

export const acquirePessimisticLock = {
  body: object({
    keys: Keys,
    primary: described(Key, 'The key that decides.'),
    start_ts: WrittenTimestamp,
    for_update_ts: described(
      WrittenTimestamp,
      'Taken for this lock, at least `start_ts`. A newer version of a key is 409 `write_conflict`, `pessimistic_retry`.',
    ),
    lock_ttl: described(
      optional(Milliseconds),
      'Counted from the time in `start_ts`, and the wait of the request is added. Default: 3000. A heartbeat of the primary raises it.',
    ),
    is_first_lock: described(Flag, 'Accepted and not needed.'),
    wait_timeout: described(
      optional(Type.Integer({ minimum: -1, maximum: LOCK_WAIT_MS_MAX })),
      'Milliseconds to wait for the lock of another transaction, then 423 `lock_wait_timeout`. 0 or absent: 1000. -1: no wait, 423 `key_locked`.',
    ),
    return_values: described(Flag, 'Answers the latest values.'),
    check_existence: described(Flag, 'Answers only whether there are values.'),
    lock_only_if_exists: described(Flag, 'With `return_values`: a key without a value is not locked.'),
    insert: described(Flag, '409 `already_exists` where there is a value.'),
    wake_up_mode: described(
      optional(oneOf(['normal', 'force_lock'])),
      'Extension, the fair locking of TiKV. `force_lock`, for one key: a request that was woken gets the lock at the newest version, instead of `pessimistic_retry`. Default: `normal`.',
    ),
    until_expired: described(
      Flag,
      'Extension. The wait also ends, with 423 `lock_wait_timeout`, when the TTL of the lock in the way has ended, so that the client can end its transaction.',
    ),
  }),
  ...answering(
    Type.Object({
      results: described(
        Type.Array(
          Type.Object({
            found: Flag,
            value: optional(Value),
            expire_ts: ExpireTs,
            lease_fence: LeaseFence,
            locked_with_conflict_ts: described(
              optional(Timestamp),
              'With `force_lock`: the commit_ts of the newest version, which was written after `for_update_ts`. The `for_update_ts` of the transaction must be at least this from here on.',
            ),
          }),
        ),
        'In the order of the keys.',
      ),
    }),
  ),
}

/** Needs no `written` timestamps, since it writes no record. */
export const pessimisticRollback = {
  body: object({
    keys: Keys,
    start_ts: TimestampBelowMax,
    for_update_ts: described(TimestampBelowMax, 'Gives up locks up to this.'),
  }),
  ...answering(Nothing),
}

export const validateReads = {
  body: object({
    start_ts: described(TimestampBelowMax, 'The snapshot that the transaction read.'),
    commit_ts: described(TimestampBelowMax, 'Nobody else may write what was read up to this. Above `start_ts`.'),
    ...readSet,
    leases: described(
      optional(Type.Array(object(leaseCheck), { maxItems: LEASE_CHECKS_MAX })),
      'Leases that must be held at `commit_ts`, which the server has handed out; otherwise 412 `precondition_failed`. `index` there is the place in this list.',
    ),
  }),
  ...answering(Nothing),
}

export const resolveLock = {
  body: object({
    start_ts: described(optional(WrittenTimestamp), 'Of one transaction.'),
    commit_ts: described(optional(WrittenTimestampOrZero), 'Of one transaction. 0: it is rolled back.'),
    keys: described(optional(Keys), 'Default: all keys that it has locked.'),
    txns: described(
      optional(
        Type.Array(object({ start_ts: WrittenTimestamp, commit_ts: WrittenTimestampOrZero }), {
          minItems: 1,
          atMost: 'requestKeysMax',
        }),
      ),
      'Several transactions. Does not go with the other fields.',
    ),
  }),
  ...answering(Type.Object({ resolved: described(Count, 'Locks removed.') })),
}

export const scanLock = {
  body: object({
    max_ts: described(Timestamp, 'Only locks of transactions that started at or before it.'),
    start: Bound,
    end: Bound,
    limit: described(
      optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
      'Default: all locks of the range.',
    ),
  }),
  ...answering(Type.Object({ locks: described(Locks, 'In order of keys, pessimistic ones too.') })),
}

export const getLockWaitInfo = {
  body: object({
    limit: described(
      optional(Type.Integer({ minimum: 1, maximum: LOCK_WAITS_SHOWN_MAX })),
      'Most entries, 1000 by default.',
    ),
  }),
  ...answering(
    Type.Object({
      entries: Type.Array(
        Type.Object({
          txn: described(Timestamp, 'start_ts of the transaction that waits.'),
          wait_for_txn: described(Timestamp, 'start_ts of the one that holds the lock.'),
          key: Key,
        }),
      ),
    }),
  ),
}

export const gc = {
  body: object({
    safe_point: described(Timestamp, 'One below the present safe point changes nothing; one in the future is refused.'),
  }),
  ...answering(
    Type.Object({
      safe_point: described(Timestamp, 'The one in force.'),
      versions_removed: described(Count, 'Write records.'),
    }),
  ),
}

/** All stored records of one key. `writes` and `values` are newest first. */
const history = {
  lock: Type.Union([LockInfo, Type.Null()]),
  writes: described(
    Type.Array(
      Type.Object({
        type: oneOf(['put', 'delete', 'lock', 'rollback']),
        start_ts: Timestamp,
        commit_ts: described(Timestamp, 'Of a rollback: its `start_ts`.'),
        short_value: described(optional(Value), 'A value of up to 255 bytes.'),
        expire_ts: ExpireTs,
        lease_fence: LeaseFence,
        protected: described(Flag, 'Of a rollback: no other record may take its place.'),
        overlapped_rollback: described(Flag, 'The transaction that started at `commit_ts` is rolled back on this key.'),
      }),
    ),
    'Newest first.',
  ),
  values: described(
    Type.Array(Type.Object({ start_ts: Timestamp, value: Value })),
    'Those of over 255 bytes, newest first.',
  ),
}

export const mvccGetByKey = { body: object({ key: Key }), ...answering(Type.Object(history)) }

export const mvccGetByStartTs = {
  body: object({ start_ts: Timestamp, start: Bound, end: Bound }),
  ...answering(
    Type.Object({ key: described(optional(Key), 'Absent: the range has nothing of that transaction.'), ...history }),
  ),
}

export const deleteRange = { body: object({ start: Key, end: Key }), ...answering(Nothing) }
