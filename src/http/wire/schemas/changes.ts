import { Problem } from './problem.js'
import { type Fields, Type } from './schema.js'
import { Count, described, ExpireTs, Key, oneOf, optional, Timestamp, TimestampOrZero, Value } from './values.js'

const Old = described(
  Type.Union([Type.Object({ value: Value, commit_ts: Timestamp, expire_ts: ExpireTs }), Type.Null()]),
  'With `old_values`: the version before, of `expire` the one that has expired; null when there was none.',
)

const txn = {
  commit_ts: Timestamp,
  start_ts: Timestamp,
  part: described(optional(Count), 'A long transaction may come in parts: 0, 1, ... Absent: it comes whole.'),
  is_last: described(optional(Type.Boolean()), 'True in the last of several parts.'),
  changes: Type.Array(
    Type.Object({
      key: described(Key, 'Of a `delete_range`: the first key of the range.'),
      op: described(
        oneOf(['put', 'delete', 'expire', 'delete_range']),
        '`expire`: the version has expired; `commit_ts` is its `expire_ts`, or its own where that is later, after the transactions of that timestamp. `delete_range`: all versions of the keys from `key` to before `end` are gone; cut to the range of the feed.',
      ),
      end: described(optional(Key), 'Of a `delete_range`.'),
      value: described(optional(Value), 'Of a `put`, unless only keys were asked for.'),
      old: Type.Optional(Old),
      expire_ts: described(
        optional(Timestamp),
        'Of `expire`, and of a `put` that has one and comes with its value: the key is absent from this timestamp on.',
      ),
    }),
  ),
}

const EVENTS: Readonly<Record<string, Fields>> = {
  txn,
  resolved: { resolved_ts: described(TimestampOrZero, 'Nothing at or below it comes any more.') },
  pair: { key: Key, value: optional(Value), commit_ts: Timestamp, expire_ts: ExpireTs },
  snapshot_end: { ts: Timestamp },
}

const events = Object.fromEntries(Object.entries(EVENTS).map(([name, fields]) => [name, Type.Object(fields)]))
const lines = Object.entries(EVENTS).map(([name, fields]) => Type.Object({ type: oneOf([name]), ...fields }))

export const changes = {
  answers: {
    200: {
      json: Type.Object({
        txns: described(Type.Array(Type.Object(txn)), 'In order of `commit_ts`; changes of one in order of keys.'),
        resolved_ts: described(TimestampOrZero, 'Nothing at or below it comes any more.'),
        next_ts: described(TimestampOrZero, 'The `since_ts` of the next page.'),
      }),
      ndjson: Type.Union([...lines, Type.Object({ type: oneOf(['error']) })]),
      events: { ...events, error: Problem },
    },
  },
} as const
