import { TTL_MS_MAX } from '../../../limits.js'
import { type Fields, type Schema, Type } from './schema.js'

/** Schemas that requests and answers share. */

/** An object in a request. Unknown fields are refused, so that a misspelt option is never ignored. */
export const object = <P extends Fields>(properties: P) => Type.Object(properties, { additionalProperties: false })
export const optional = Type.Optional
export const described = <S extends Schema>(schema: S, description: string): S => ({ ...schema, description })
export const oneOf = Type.Enum

/** unix_ms * 2^11 + counter: a safe integer, so plain JSON numbers carry it exactly. */
export const Timestamp = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })
export const TimestampOrZero = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const OptionalTimestamp = optional(
  Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, zeroIsAbsent: true }),
)
export const Milliseconds = Type.Integer({ minimum: 0, maximum: 2 ** 41 })
export const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const Flag = optional(Type.Boolean())

export const TtlMs = described(
  optional(Type.Integer({ minimum: 1, maximum: TTL_MS_MAX })),
  'The version is absent so many milliseconds later. Absent, like `expire_ts`: it does not expire.',
)
export const ExpireTsToSet = described(
  optional(Timestamp),
  'The version is absent from this timestamp on, at every snapshot. Does not go with `ttl_ms`.',
)
export const ExpireTs = described(
  optional(Timestamp),
  'The version is absent from this timestamp on. Absent: it does not expire.',
)

export const LeaseFence = described(
  optional(Timestamp),
  'The version is attached to the lease that has this fence: the end of that lease deletes the key. Absent: it is attached to none.',
)

export const Key = Type.Bytes('key')
export const Value = Type.Bytes('value')
export const Bound = optional(Type.Bytes('bound'))
export const range = {
  prefix: described(Bound, 'All keys that begin with it. Does not go with `start` or `end`.'),
  start: described(Bound, 'First key of the range. Absent or empty: no bound.'),
  end: described(Bound, 'The range ends before this key. Absent or empty: no bound.'),
}
export const givenRange = {
  ...range,
  prefix: described(
    optional(Type.Bytes('prefix')),
    'All keys that begin with it; empty: every key. Does not go with `start` or `end`.',
  ),
}

export const Nothing = Type.Object({})

/** `value` is absent when only keys were asked for, `commit_ts` in a transaction's own writes. */
export const Pair = Type.Object({
  key: Key,
  value: described(optional(Value), 'Absent when only keys were asked for.'),
  commit_ts: described(optional(Timestamp), 'Absent in a transaction’s own writes.'),
  expire_ts: ExpireTs,
  lease_fence: LeaseFence,
})

/** Keys that the caller's token does not cover are empty. `for_update_ts` and `min_commit_ts` are 0 when the lock has none. */
export const LockInfo = Type.Object({
  key: Key,
  primary: Key,
  start_ts: Timestamp,
  ttl: described(
    Milliseconds,
    'From the time in `start_ts`. Longer by the jump where the clock of the server has jumped forward since.',
  ),
  type: oneOf(['put', 'delete', 'lock', 'pessimistic']),
  txn_size: described(Count, 'As its prewrite said.'),
  for_update_ts: described(TimestampOrZero, '0: the lock has none.'),
  min_commit_ts: described(TimestampOrZero, '0: the lock has none.'),
  use_async_commit: Type.Boolean(),
  secondaries: described(Type.Array(Key), 'The other keys of the transaction, in the primary of an async commit.'),
  expire_ts: described(optional(Timestamp), 'Of the version that the transaction writes, if it expires.'),
  lease_fence: described(optional(Timestamp), 'Of the same version, if it is attached to a lease.'),
})

export const HoldingLock = Type.Object({
  ...LockInfo.properties,
  expires_in_ms: described(Milliseconds, 'Until its TTL is over, unless a heartbeat raises it.'),
})
