import { type Fields, Type } from './schema.js'

/** Schemas that requests and answers share. */

/** An object in a request. Unknown fields are refused, so that a misspelt option is never ignored. */
export const object = <P extends Fields>(properties: P) => Type.Object(properties, { additionalProperties: false })
export const optional = Type.Optional
export const oneOf = Type.Enum

/** unix_ms * 2^11 + counter: a safe integer, so plain JSON numbers carry it exactly. */
export const Timestamp = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })
/** Each call defines the meaning of 0. */
export const TimestampOrZero = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const OptionalTimestamp = optional(
  Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, zeroIsAbsent: true }),
)
export const Milliseconds = Type.Integer({ minimum: 0, maximum: 2 ** 41 })
export const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const Flag = optional(Type.Boolean())

export const Key = Type.Bytes('key')
export const Value = Type.Bytes('value')
export const Bound = optional(Type.Bytes('bound'))
export const range = { prefix: Bound, start: Bound, end: Bound }
/** A range as it was given, which is shown again. An empty prefix is every key. */
export const givenRange = { prefix: optional(Type.Bytes('prefix')), start: Bound, end: Bound }

export const Nothing = Type.Object({})

/** `value` is absent when only keys were asked for, `commit_ts` in a transaction's own writes. */
export const Pair = Type.Object({ key: Key, value: optional(Value), commit_ts: optional(Timestamp) })

/** Keys that the caller's token does not reach are empty. `for_update_ts` and `min_commit_ts` are 0 when the lock has none. */
export const LockInfo = Type.Object({
  key: Key,
  primary: Key,
  start_ts: Timestamp,
  ttl: Milliseconds,
  type: oneOf(['put', 'delete', 'lock', 'pessimistic']),
  txn_size: Count,
  for_update_ts: TimestampOrZero,
  min_commit_ts: TimestampOrZero,
  use_async_commit: Type.Boolean(),
  secondaries: Type.Array(Key),
})
