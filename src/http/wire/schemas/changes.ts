import { Problem } from './problem.js'
import { type Fields, Type } from './schema.js'
import { Count, Key, oneOf, optional, Timestamp, TimestampOrZero, Value } from './values.js'

const Old = Type.Union([Type.Object({ value: Value, commit_ts: Timestamp }), Type.Null()])

const txn = {
  commit_ts: Timestamp,
  start_ts: Timestamp,
  part: optional(Count),
  is_last: optional(Type.Boolean()),
  changes: Type.Array(
    Type.Object({
      key: Key,
      op: oneOf(['put', 'delete', 'expire', 'delete_range']),
      end: optional(Key),
      value: optional(Value),
      old: Type.Optional(Old),
      expire_ts: optional(Timestamp),
    }),
  ),
}

const EVENTS: Readonly<Record<string, Fields>> = {
  txn,
  resolved: { resolved_ts: TimestampOrZero },
  pair: { key: Key, value: optional(Value), commit_ts: Timestamp },
  snapshot_end: { ts: Timestamp },
}

const events = Object.fromEntries(Object.entries(EVENTS).map(([name, fields]) => [name, Type.Object(fields)]))
const lines = Object.entries(EVENTS).map(([name, fields]) => Type.Object({ type: oneOf([name]), ...fields }))

export const changes = {
  answers: {
    200: {
      json: Type.Object({ txns: Type.Array(Type.Object(txn)), resolved_ts: TimestampOrZero, next_ts: TimestampOrZero }),
      ndjson: Type.Union([...lines, Type.Object({ type: oneOf(['error']) })]),
      events: { ...events, error: Problem },
    },
  },
} as const
