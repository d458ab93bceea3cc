import { LOCK_WAIT_MS_MAX, LOCK_WAITS_SHOWN_MAX, TSO_COUNT_MAX } from '../../../limits.js'
import { TIMESTAMP_MAX } from '../../../timestamp.js'
import { answering } from './call-schema.js'
import { riders } from './riders.js'
import { Type } from './schema.js'
import {
  Bound,
  Count,
  Flag,
  Key,
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

const Keys = Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax', distinct: 'items' })
const Locks = Type.Array(LockInfo)

export const tso = {
  body: object({ count: optional(Type.Integer({ minimum: 1, maximum: TSO_COUNT_MAX })) }),
  ...answering(Type.Object({ ts: Timestamp, count: Count, now: Timestamp })),
}

export const get = {
  body: object({ key: Key, ts: OptionalTimestamp }),
  ...answering(Type.Object({ found: Type.Boolean(), value: optional(Value), commit_ts: optional(Timestamp) })),
}

export const batchGet = {
  body: object({ keys: Keys, ts: OptionalTimestamp }),
  ...answering(Type.Object({ pairs: Type.Array(Pair) })),
}

export const scan = {
  body: object({
    start: Bound,
    end: Bound,
    limit: Type.Integer({ minimum: 1, atMost: 'requestKeysMax' }),
    ts: Timestamp,
    reverse: Flag,
    key_only: Flag,
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
        op: oneOf(['put', 'delete', 'lock', 'insert', 'check_not_exists']),
        key: Key,
        value: optional(Value),
        assertion: optional(oneOf(['exist', 'not_exist'])),
      }),
      { atMost: 'requestKeysMax', distinct: 'key' },
    ),
    primary: optional(Key),
    start_ts: WrittenTimestamp,
    lock_ttl: optional(Milliseconds),
    txn_size: optional(Count),
    min_commit_ts: OptionalWrittenTimestamp,
    max_commit_ts: OptionalTimestamp,
    use_async_commit: Flag,
    secondaries: optional(Type.Array(Key, { atMost: 'requestKeysMax', distinct: 'items' })),
    try_one_pc: Flag,
    for_update_ts: OptionalWrittenTimestamp,
    pessimistic_actions: optional(Type.Array(oneOf(['skip', 'do', 'constraint']), { atMost: 'requestKeysMax' })),
    for_update_ts_max: optional(Type.Array(TimestampBelowMax, { atMost: 'requestKeysMax' })),
    skip_constraint_check: Flag,
    linearizable: Flag,
    reads: optional(object(readSet)),
    riders: optional(object(riders)),
  }),
  ...answering(Type.Object({ min_commit_ts: optional(Timestamp), one_pc_commit_ts: optional(Timestamp) })),
}

export const commit = {
  body: object({ keys: Keys, start_ts: WrittenTimestamp, commit_ts: WrittenTimestamp, primary: optional(Key) }),
  ...answering(Type.Object({ commit_ts: Timestamp })),
}

export const rollback = { body: object({ keys: Keys, start_ts: WrittenTimestamp }), ...answering(Nothing) }

export const cleanup = {
  body: object({ key: Key, start_ts: WrittenTimestamp, current_ts: TimestampOrZero }),
  ...answering(Nothing),
}

export const checkTxnStatus = {
  body: object({
    primary: Key,
    lock_ts: WrittenTimestamp,
    // The lock's min_commit_ts is raised above it, except when it is the maximum (a read of the latest version).
    caller_start_ts: Type.Integer({ minimum: 0, maximum: TIMESTAMP_MAX, written: 'every_but_max' }),
    current_ts: TimestampOrZero,
    rollback_if_not_exist: Flag,
    force_sync_commit: Flag,
    resolving_pessimistic_lock: Flag,
    verify_is_primary: Flag,
  }),
  ...answering(
    Type.Object({
      status: oneOf(['locked', 'committed', 'rolled_back']),
      lock_ttl: Milliseconds,
      commit_ts: TimestampOrZero,
      action: oneOf([
        'no_action',
        'ttl_expire_rollback',
        'lock_not_exist_rollback',
        'min_commit_ts_pushed',
        'ttl_expire_pessimistic_rollback',
        'lock_not_exist_do_nothing',
      ]),
      lock: optional(LockInfo),
    }),
  ),
}

export const checkSecondaryLocks = {
  body: object({ keys: Keys, start_ts: WrittenTimestamp }),
  ...answering(Type.Object({ locks: Locks, commit_ts: TimestampOrZero })),
}

export const txnHeartBeat = {
  body: object({
    primary: Key,
    start_ts: Timestamp,
    advise_lock_ttl: Milliseconds,
    min_commit_ts: OptionalWrittenTimestamp,
  }),
  ...answering(Type.Object({ lock_ttl: Milliseconds })),
}

export const acquirePessimisticLock = {
  body: object({
    keys: Keys,
    primary: Key,
    start_ts: WrittenTimestamp,
    for_update_ts: WrittenTimestamp,
    lock_ttl: optional(Milliseconds),
    is_first_lock: Flag,
    wait_timeout: optional(Type.Integer({ minimum: -1, maximum: LOCK_WAIT_MS_MAX })),
    return_values: Flag,
    check_existence: Flag,
    lock_only_if_exists: Flag,
    insert: Flag,
    wake_up_mode: optional(oneOf(['normal', 'force_lock'])),
  }),
  ...answering(
    Type.Object({
      results: Type.Array(
        Type.Object({ found: Flag, value: optional(Value), locked_with_conflict_ts: optional(Timestamp) }),
      ),
    }),
  ),
}

/** Needs no `written` timestamps, since it writes no record. */
export const pessimisticRollback = {
  body: object({ keys: Keys, start_ts: TimestampBelowMax, for_update_ts: TimestampBelowMax }),
  ...answering(Nothing),
}

export const validateReads = {
  body: object({ start_ts: TimestampBelowMax, commit_ts: TimestampBelowMax, ...readSet }),
  ...answering(Nothing),
}

export const resolveLock = {
  body: object({
    start_ts: optional(WrittenTimestamp),
    commit_ts: optional(WrittenTimestampOrZero),
    keys: optional(Keys),
    txns: optional(
      Type.Array(object({ start_ts: WrittenTimestamp, commit_ts: WrittenTimestampOrZero }), {
        minItems: 1,
        atMost: 'requestKeysMax',
      }),
    ),
  }),
  ...answering(Type.Object({ resolved: Count })),
}

export const scanLock = {
  body: object({
    max_ts: Timestamp,
    start: Bound,
    end: Bound,
    limit: optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
  }),
  ...answering(Type.Object({ locks: Locks })),
}

export const getLockWaitInfo = {
  body: object({ limit: optional(Type.Integer({ minimum: 1, maximum: LOCK_WAITS_SHOWN_MAX })) }),
  ...answering(
    Type.Object({ entries: Type.Array(Type.Object({ txn: Timestamp, wait_for_txn: Timestamp, key: Key })) }),
  ),
}

export const gc = {
  body: object({ safe_point: Timestamp }),
  ...answering(Type.Object({ safe_point: Timestamp, versions_removed: Count })),
}

/** All stored records of one key. `writes` and `values` are newest first. */
const history = {
  lock: Type.Union([LockInfo, Type.Null()]),
  writes: Type.Array(
    Type.Object({
      type: oneOf(['put', 'delete', 'lock', 'rollback']),
      start_ts: Timestamp,
      commit_ts: Timestamp,
      short_value: optional(Value),
      protected: Flag,
      overlapped_rollback: Flag,
    }),
  ),
  values: Type.Array(Type.Object({ start_ts: Timestamp, value: Value })),
}

export const mvccGetByKey = { body: object({ key: Key }), ...answering(Type.Object(history)) }

export const mvccGetByStartTs = {
  body: object({ start_ts: Timestamp, start: Bound, end: Bound }),
  ...answering(Type.Object({ key: optional(Key), ...history })),
}

export const deleteRange = { body: object({ start: Key, end: Key }), ...answering(Nothing) }
