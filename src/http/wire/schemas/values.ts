import { type TProperties, Type } from '@sinclair/typebox'

/**
 * What requests and answers are made of. In requests `bytes`, `zeroIsAbsent`, `distinct` (no key twice in a list: of its
 * `items`, or their `key`), `written` and `atMost` are keywords of this server (see validation.ts, decode.ts, written-timestamp.ts
 * and at-most.ts).
 */

/** An object of a request. Unknown fields are refused everywhere: a misspelt option is never ignored. */
export const object = <P extends TProperties>(properties: P) => Type.Object(properties, { additionalProperties: false })
export const optional = Type.Optional
export const oneOf = <const T extends readonly string[]>(names: T) =>
  Type.Unsafe<T[number]>({ type: 'string', enum: names })

/** unix_ms * 2^11 + counter: a safe integer, so plain JSON numbers carry it exactly. */
export const Timestamp = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })
/** 0 means something of its own, which the call says. */
export const TimestampOrZero = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const OptionalTimestamp = optional(
  Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, zeroIsAbsent: true }),
)
export const Milliseconds = Type.Integer({ minimum: 0, maximum: 2 ** 41 })
export const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const Flag = optional(Type.Boolean())

export const Key = Type.Unsafe<Uint8Array>({ bytes: 'key' })
export const Value = Type.Unsafe<Uint8Array>({ bytes: 'value' })
export const Bound = optional(Type.Unsafe<Uint8Array>({ bytes: 'bound' }))
export const range = { prefix: Bound, start: Bound, end: Bound }

/** The answer of a call that has nothing to tell. */
export const Nothing = Type.Object({})

/** `value` is absent where only keys are asked for, `commit_ts` in a transaction's own writes. */
export const Pair = Type.Object({ key: Key, value: optional(Value), commit_ts: optional(Timestamp) })

/** A key that the caller's token does not reach is empty. `for_update_ts` and `min_commit_ts`: 0 is none. */
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
