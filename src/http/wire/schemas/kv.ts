import { answering } from './call-schema.js'
import { Problem } from './problem.js'
import { Type } from './schema.js'
import {
  Count,
  described,
  ExpireTs,
  Key,
  OptionalTimestamp,
  object,
  optional,
  Pair,
  Timestamp,
  TimestampOrZero,
  Value,
} from './values.js'

const State = {
  key: Key,
  commit_ts: described(
    TimestampOrZero,
    'Of this version, or of the deletion. 0: the time of the deletion is not known.',
  ),
}

export const readKey = {
  answers: {
    200: {
      octets: true,
      events: {
        value: Type.Object({ ...State, value: Value, expire_ts: ExpireTs }),
        absent: Type.Object(State),
        error: Problem,
      },
    },
    304: {},
  },
} as const
export const readKeyInTxn = { answers: { 200: { octets: true }, 304: {} } } as const

export const writeKey = answering(
  Type.Object({ commit_ts: described(Timestamp, 'Names this version; in an ETag it stands in quotes.') }),
)

export const scanKeys = {
  answers: {
    200: {
      json: Type.Union([
        Type.Object(
          {
            pairs: Type.Array(Pair),
            ts: described(Timestamp, 'The snapshot that was read.'),
            cursor: described(optional(Type.String()), 'Continues the scan. Absent on the last page.'),
          },
          { title: 'A page' },
        ),
        Type.Object(
          { count: Count, ts: described(Timestamp, 'The snapshot that was read.') },
          { title: 'With `count_only`' },
        ),
      ]),
      ndjson: Pair,
    },
  },
} as const

export const deleteRange = answering(
  Type.Object({ deleted: Count, commit_ts: optional(Timestamp), cursor: optional(Type.String()) }),
)

export const batchGet = {
  body: object({
    keys: Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax' }),
    ts: described(OptionalTimestamp, 'The snapshot to read. Default: now.'),
  }),
  ...answering(
    Type.Object({
      pairs: described(Type.Array(Pair), 'Absent keys are left out, and a repeated key comes once.'),
      ts: described(Timestamp, 'The snapshot that was read.'),
    }),
  ),
}
