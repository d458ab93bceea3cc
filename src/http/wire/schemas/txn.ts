import { MAX_RETRIES_MAX, TXN_TTL_MS_MAX } from '../../../limits.js'
import { answering } from './call-schema.js'
import { riders } from './riders.js'
import { type Static, Type } from './schema.js'
import {
  Count,
  Flag,
  Key,
  Milliseconds,
  Nothing,
  object,
  oneOf,
  optional,
  Pair,
  range,
  Timestamp,
  TimestampOrZero,
  Value,
} from './values.js'

const by = Type.Integer({ minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER })
const Isolation = oneOf(['snapshot', 'serializable'])
const Mode = oneOf(['optimistic', 'pessimistic'])

/** One schema for all ops. `opOf` checks which fields belong to which op, because it can name the op in the error. */
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
const Ops = Type.Array(TxnOp, { atMost: 'requestKeysMax' })

/** One result per op, in their order. A value without `commit_ts` is a write of this transaction. */
const Results = Type.Array(
  Type.Union([
    Type.Object({ found: Type.Boolean(), value: optional(Value), commit_ts: optional(Timestamp) }, { title: 'get' }),
    Type.Object({ pairs: Type.Array(Pair) }, { title: 'scan' }),
    Type.Object({ value: Value }, { title: 'increment' }),
    Type.Object({}, { title: 'put, delete, insert' }),
  ]),
)

export const oneShot = {
  body: object({
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
    ops: optional(Ops),
    isolation: optional(Isolation),
    max_retries: optional(Type.Integer({ minimum: 0, maximum: MAX_RETRIES_MAX })),
    ...riders,
  }),
  ...answering(Type.Object({ start_ts: Timestamp, commit_ts: optional(Timestamp), results: Results })),
}

export const begin = {
  body: object({
    mode: optional(Mode),
    isolation: optional(Isolation),
    ttl_ms: optional(Type.Integer({ minimum: 1, maximum: TXN_TTL_MS_MAX })),
  }),
  answers: { 201: { json: Type.Object({ txn: Type.String(), start_ts: Timestamp }) } },
}

export const writeKeyInTxn = answering(Nothing)

export const runOps = { body: object({ ops: Ops }), ...answering(Type.Object({ results: Results })) }

export const commit = { body: object(riders), ...answering(Type.Object({ commit_ts: Timestamp })) }

export const rollback = { body: object({}), ...answering(Nothing) }

export const state = answering(
  Type.Object({
    txn: Type.String(),
    start_ts: Timestamp,
    mode: Mode,
    state: oneOf(['open', 'committing', 'undetermined', 'committed', 'rolled_back']),
    writes: Count,
    expires_in_ms: Milliseconds,
  }),
)
