import { answering } from './call-schema.js'
import { Problem } from './problem.js'
import { Type } from './schema.js'
import { Count, Key, OptionalTimestamp, object, optional, Pair, Timestamp, TimestampOrZero, Value } from './values.js'

const State = { key: Key, commit_ts: TimestampOrZero }

export const readKey = {
  answers: {
    200: {
      octets: true,
      events: { value: Type.Object({ ...State, value: Value }), absent: Type.Object(State), error: Problem },
    },
    304: {},
  },
} as const
/** In a transaction. */
export const readKeyInTxn = { answers: { 200: { octets: true }, 304: {} } } as const

export const writeKey = answering(Type.Object({ commit_ts: Timestamp }))

export const scanKeys = {
  answers: {
    200: {
      json: Type.Union([
        Type.Object({ pairs: Type.Array(Pair), ts: Timestamp, cursor: optional(Type.String()) }),
        Type.Object({ count: Count, ts: Timestamp }),
      ]),
      ndjson: Pair,
    },
  },
} as const

export const batchGet = {
  body: object({ keys: Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax' }), ts: OptionalTimestamp }),
  ...answering(Type.Object({ pairs: Type.Array(Pair), ts: Timestamp })),
}
