import { type Static, type TProperties, Type } from '@sinclair/typebox'
import { LOCK_WAIT_MS_MAX, MAX_RETRIES_MAX, PIN_TTL_MS_MAX, TSO_COUNT_MAX, TXN_TTL_MS_MAX } from '../../limits.js'
import { TIMESTAMP_MAX } from '../../timestamp.js'

/**
 * One source for validation and types of request bodies. `bytes`, `zeroIsAbsent`, `distinct` (no key twice in a list: of its
 * `items`, or their `key`) and `atMost` are keywords of this server (see validation.ts, decode.ts and at-most.ts). Unknown fields are refused everywhere: a misspelt option is never ignored.
 */
const object = <P extends TProperties>(properties: P) => Type.Object(properties, { additionalProperties: false })
const optional = Type.Optional

/** unix_ms * 2^11 + counter: a safe integer, so plain JSON numbers carry it exactly. */
const Timestamp = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })
/** The highest means "the latest version" to readers, so nothing stands at it. */
const belowMax = { maximum: TIMESTAMP_MAX - 1 }
const TimestampBelowMax = Type.Integer({ minimum: 1, ...belowMax })
/** One that may be written down; see written-timestamp.ts. */
const written = { ...belowMax, written: 'every' }
const WrittenTimestamp = Type.Integer({ minimum: 1, ...written })
const OptionalWrittenTimestamp = optional(Type.Integer({ minimum: 0, ...written, zeroIsAbsent: true }))
/** 0 means something of its own, which the call says. */
const TimestampOrZero = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const WrittenTimestampOrZero = Type.Integer({ minimum: 0, ...written })
const OptionalTimestamp = optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, zeroIsAbsent: true }))
const Milliseconds = Type.Integer({ minimum: 0, maximum: 2 ** 41 })
const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const Flag = optional(Type.Boolean())

const Key = Type.Unsafe<Uint8Array>({ bytes: 'key' })
const Value = Type.Unsafe<Uint8Array>({ bytes: 'value' })
const Bound = optional(Type.Unsafe<Uint8Array>({ bytes: 'bound' }))
const Keys = Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax', distinct: 'items' })

const oneOf = <const T extends readonly string[]>(names: T) => Type.Unsafe<T[number]>({ type: 'string', enum: names })

export const TsoBody = object({ count: optional(Type.Integer({ minimum: 1, maximum: TSO_COUNT_MAX })) })
export const GetBody = object({ key: Key, ts: OptionalTimestamp })
export const BatchGetBody = object({ keys: Keys, ts: OptionalTimestamp })
export const KvBatchGetBody = object({
  keys: Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax' }),
  ts: OptionalTimestamp,
})
export const ScanBody = object({
  start: Bound,
  end: Bound,
  limit: Type.Integer({ minimum: 1, atMost: 'requestKeysMax' }),
  ts: Timestamp,
  reverse: Flag,
  key_only: Flag,
})
/** What a serializable transaction read. */
const readSet = {
  keys: optional(Type.Array(Key, { atMost: 'requestKeysMax' })),
  ranges: optional(Type.Array(object({ start: Bound, end: Bound }), { atMost: 'requestKeysMax' })),
}
export const PrewriteBody = object({
  mutations: Type.Array(
    object({
      op: oneOf(['put', 'delete', 'lock', 'insert', 'check_not_exists']),
      key: Key,
      value: optional(Value),
      assertion: optional(oneOf(['exist', 'not_exist'])),
    }),
    { minItems: 1, atMost: 'requestKeysMax', distinct: 'key' },
  ),
  primary: Key,
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
})
export const CommitBody = object({
  keys: Keys,
  start_ts: WrittenTimestamp,
  commit_ts: WrittenTimestamp,
  primary: optional(Key),
})
export const RollbackBody = object({ keys: Keys, start_ts: WrittenTimestamp })
export const CleanupBody = object({ key: Key, start_ts: WrittenTimestamp, current_ts: TimestampOrZero })
export const CheckTxnStatusBody = object({
  primary: Key,
  lock_ts: WrittenTimestamp,
  // A lock's min_commit_ts goes above it, but for a reader of the latest version.
  caller_start_ts: Type.Integer({ minimum: 0, maximum: TIMESTAMP_MAX, written: 'every_but_max' }),
  current_ts: TimestampOrZero,
  rollback_if_not_exist: Flag,
  force_sync_commit: Flag,
  resolving_pessimistic_lock: Flag,
  verify_is_primary: Flag,
})
export const CheckSecondaryLocksBody = object({ keys: Keys, start_ts: WrittenTimestamp })
export const TxnHeartBeatBody = object({
  primary: Key,
  start_ts: Timestamp,
  advise_lock_ttl: Milliseconds,
  min_commit_ts: OptionalWrittenTimestamp,
})
export const AcquirePessimisticLockBody = object({
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
})
/** Writes no record. */
export const PessimisticRollbackBody = object({
  keys: Keys,
  start_ts: TimestampBelowMax,
  for_update_ts: TimestampBelowMax,
})
export const ValidateReadsBody = object({ start_ts: TimestampBelowMax, commit_ts: TimestampBelowMax, ...readSet })
export const ResolveLockBody = object({
  start_ts: optional(WrittenTimestamp),
  commit_ts: optional(WrittenTimestampOrZero),
  keys: optional(Keys),
  txns: optional(
    Type.Array(object({ start_ts: WrittenTimestamp, commit_ts: WrittenTimestampOrZero }), {
      minItems: 1,
      atMost: 'requestKeysMax',
    }),
  ),
})
export const ScanLockBody = object({
  max_ts: Timestamp,
  start: Bound,
  end: Bound,
  limit: optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
})
export const GcBody = object({ safe_point: Timestamp })
const range = { prefix: Bound, start: Bound, end: Bound }
const PinTtl = Type.Integer({ minimum: 1, maximum: PIN_TTL_MS_MAX })
export const AdminGcBody = object({ safe_point: optional(Timestamp), life_time_ms: optional(Milliseconds) })
export const AdminCompactBody = object(range)
export const PinBody = object({ ts: optional(Timestamp), ttl_ms: optional(PinTtl) })
export const PinRenewBody = object({ ttl_ms: optional(PinTtl) })
export const MvccGetByKeyBody = object({ key: Key })
export const MvccGetByStartTsBody = object({ start_ts: Timestamp, start: Bound, end: Bound })
export const DeleteRangeBody = object({ start: Key, end: Key })

const by = Type.Integer({ minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER })
/** One shape for all ops; which fields go with which op is checked in routes/txn.ts, where the error can say so. */
const TxnOp = object({
  op: oneOf(['get', 'put', 'delete', 'insert', 'increment', 'scan']),
  key: optional(Key),
  value: optional(Value),
  by: optional(by),
  ...range,
  limit: optional(Type.Integer({ minimum: 1, atMost: 'scanLimitMax' })),
  reverse: Flag,
  keys_only: Flag,
})
export type TxnOp = Static<typeof TxnOp>

export const TxnBody = object({
  checks: optional(
    Type.Array(
      object({
        key: Key,
        exists: optional(Type.Boolean()),
        value: optional(Value),
        commit_ts: optional(TimestampOrZero),
      }),
      { atMost: 'requestKeysMax' },
    ),
  ),
  ops: optional(Type.Array(TxnOp, { atMost: 'requestKeysMax' })),
  isolation: optional(oneOf(['snapshot', 'serializable'])),
  max_retries: optional(Type.Integer({ minimum: 0, maximum: MAX_RETRIES_MAX })),
})
export const TxnBeginBody = object({
  mode: optional(oneOf(['optimistic', 'pessimistic'])),
  isolation: optional(oneOf(['snapshot', 'serializable'])),
  ttl_ms: optional(Type.Integer({ minimum: 1, maximum: TXN_TTL_MS_MAX })),
})
export const TxnOpsBody = object({ ops: Type.Array(TxnOp, { atMost: 'requestKeysMax' }) })
export const NothingBody = object({})
