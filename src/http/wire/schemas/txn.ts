import { LEASE_CHECKS_MAX, MAX_RETRIES_MAX, TXN_TTL_MS_MAX } from '../../../limits.js'
import { answering } from './call-schema.js'
import { LeaseName, leaseCheck, riders } from './riders.js'
import { type Static, Type } from './schema.js'
import {
  Count,
  described,
  ExpireTs,
  ExpireTsToSet,
  Flag,
  Key,
  LeaseFence,
  Milliseconds,
  Nothing,
  object,
  oneOf,
  optional,
  Pair,
  range,
  Timestamp,
  TimestampOrZero,
  TtlMs,
  Value,
} from './values.js'

const by = Type.Integer({ minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER })
const Isolation = described(
  oneOf(['snapshot', 'serializable']),
  '`snapshot` (default), or `serializable`: everything that the transaction read, ranges included, is still so when it commits; otherwise a write conflict, `serializable_read`. One that only reads, and not for update, always commits.',
)
const Mode = described(
  oneOf(['optimistic', 'pessimistic']),
  '`optimistic`: conflicts show at the commit. `pessimistic`: a write locks its key at once, and waits for other transactions.',
)

/** One schema for all ops. `opOf` checks which fields belong to which op, because it can name the op in the error. */
export const TxnOp = object({
  op: described(
    oneOf(['get', 'put', 'delete', 'insert', 'increment', 'min', 'max', 'touch', 'scan', 'delete_range']),
    '`insert` puts where there is no value; otherwise 409 `already_exists`. `increment` adds `by` to a value, and `min` and `max` write the smaller or the larger of a value and `by`. They take values as decimal text of at most 64 bits and refuse anything else; an absent key gets `by`. They keep the expiry of the key unless they are given one. `touch` writes the present value of a key anew, with another expiry, and answers whether there is one. `delete_range` deletes up to `limit` present keys of a range, own writes among them; where keys are written all the time, it starts anew up to `max_retries`. All ops of a request write at most `--request-keys-max` keys.',
  ),
  key: described(optional(Key), 'Of every op but `scan` and `delete_range`.'),
  value: described(optional(Value), 'Of `put` and `insert`.'),
  by: described(optional(by), 'Of `increment`, where 1 is the default, and of `min` and `max`.'),
  ttl_ms: TtlMs,
  expire_ts: ExpireTsToSet,
  lease: described(
    optional(LeaseName),
    'Of `put` and `insert`: the end of this lease deletes the key, with all others in one transaction, within 2 s, before the answer to a release and before the next grant. The transaction must check the lease (400), which has 10 000 keys at most. `touch`, `increment`, `min` and `max` keep it; a `put` without it ends it.',
  ),
  versionstamp: described(
    Flag,
    'Of `put`, without `lease`: the key that is written is `key` followed by 10 bytes, the `commit_ts` in 8 and in 2 how many such puts of the transaction came before, both big endian. So their order is that of the commits, no two are the same, and no reader of the range ever finds one below those that it has seen. Ops of the same transaction do not see it.',
  ),
  persist: described(Flag, 'Of `touch`: true, for a version that does not expire.'),
  prefix: described(range.prefix, 'Of `scan`: all keys that begin with it. Does not go with `start` or `end`.'),
  start: described(range.start, 'Of `scan`: first key of the range.'),
  end: described(range.end, 'Of `scan`: the range ends before this key.'),
  limit: described(
    optional(Type.Integer({ minimum: 1, atMost: 'scanLimitMax' })),
    'Of `scan`, default 100, and of `delete_range`, default 1000.',
  ),
  reverse: described(Flag, 'Of `scan`: from the end of the range.'),
  keys_only: described(Flag, 'Of `scan`: no values.'),
})
export type TxnOp = Static<typeof TxnOp>
const Ops = described(
  Type.Array(TxnOp, { atMost: 'requestKeysMax' }),
  'In order; each sees the snapshot and the writes of the ops before it.',
)

const Result = Type.Union([
  Type.Object(
    {
      found: Type.Boolean(),
      value: optional(Value),
      commit_ts: described(optional(Timestamp), 'Absent for a write of this transaction.'),
      expire_ts: ExpireTs,
      lease_fence: LeaseFence,
    },
    { title: 'get, touch' },
  ),
  Type.Object({ pairs: Type.Array(Pair) }, { title: 'scan' }),
  Type.Object(
    {
      deleted: Count,
      more: described(Type.Boolean(), 'Whether the range had more keys.'),
      last: described(optional(Key), 'Where there are `more`: the last key that it deleted.'),
    },
    { title: 'delete_range' },
  ),
  Type.Object({ value: described(Value, 'The new value, as decimal text.') }, { title: 'increment, min, max' }),
  Type.Object({}, { title: 'put, delete, insert' }),
])
const StampedResult = Type.Object(
  { key: described(Key, 'The key that was written.') },
  { title: 'put with versionstamp' },
)

const IN_ORDER = 'One per op, in their order. A value without `commit_ts` is a write of this transaction.'
export const Results = described(Type.Array(Type.Union([Result, StampedResult])), IN_ORDER)

export const oneShot = {
  body: object({
    checks: described(
      optional(
        Type.Array(
          object({
            key: described(optional(Key), 'Of every check but that of a lease.'),
            exists: described(optional(Type.Boolean()), 'Whether the key has a value.'),
            value: described(optional(Value), 'The value that the key has.'),
            commit_ts: described(optional(TimestampOrZero), 'The version that the key has; 0: absent.'),
            lease: described(optional(LeaseName), 'In place of `key`: a lease, with its `fence`. 1000 at most.'),
            fence: described(
              optional(Timestamp),
              'As the grant told it. The lease must be held under it at the commit.',
            ),
          }),
          { atMost: 'requestKeysMax' },
        ),
      ),
      'Conditions. One on a key has at least one of `exists`, `value` and `commit_ts`, which must hold in the snapshot. One on a lease has `lease` and `fence`, and must hold when the transaction commits, also where it writes nothing. Where the transaction writes, all of them hold at its `commit_ts`, at either isolation and with any number of servers: of two that check both of two keys and write one each, one commits. If one does not hold: 412 `precondition_failed`.',
    ),
    ops: optional(Ops),
    isolation: optional(Isolation),
    max_retries: described(
      optional(Type.Integer({ minimum: 0, maximum: MAX_RETRIES_MAX })),
      'New starts after a write conflict. Default: 10.',
    ),
    ...riders,
  }),
  ...answering(
    Type.Object({
      start_ts: described(Timestamp, 'The snapshot that was read.'),
      commit_ts: described(
        optional(Timestamp),
        'Absent when nothing was written, acknowledged or notified, and no position moved.',
      ),
      results: Results,
    }),
  ),
}

export const begin = {
  body: object({
    mode: optional(Mode),
    isolation: optional(Isolation),
    ttl_ms: described(
      optional(Type.Integer({ minimum: 1, maximum: TXN_TTL_MS_MAX })),
      'How long the transaction lives without a request. Default: 60 000.',
    ),
  }),
  answers: {
    201: {
      json: Type.Object({
        txn: described(Type.String(), 'Names the transaction in the URLs of its other calls.'),
        start_ts: described(Timestamp, 'The snapshot that it reads.'),
      }),
    },
  },
}

export const writeKeyInTxn = answering(Nothing)

export const runOps = {
  body: object({ ops: Ops }),
  ...answering(Type.Object({ results: described(Type.Array(Result), IN_ORDER) })),
}

export const commit = {
  body: object({
    checks: described(
      optional(Type.Array(object(leaseCheck), { maxItems: LEASE_CHECKS_MAX })),
      'Leases that must be held when the transaction commits; otherwise 412 `precondition_failed`, and the transaction is rolled back. A repeat of a commit is not judged again.',
    ),
    ...riders,
  }),
  ...answering(
    Type.Object({
      commit_ts: described(Timestamp, 'Of a transaction that wrote nothing: its `start_ts`.'),
      keys: described(
        optional(Type.Array(Key)),
        'The keys of the puts with `versionstamp`, in their order. A repeat has them only with an `Idempotency-Key`.',
      ),
    }),
  ),
}

export const rollback = { body: object({}), ...answering(Nothing) }

export const state = answering(
  Type.Object({
    txn: Type.String(),
    start_ts: Timestamp,
    mode: Mode,
    state: described(
      oneOf(['open', 'committing', 'undetermined', 'committed', 'rolled_back']),
      '`undetermined`: the storage failed while it committed, and another commit tells what became of it.',
    ),
    writes: described(Count, 'Keys written.'),
    expires_in_ms: described(Milliseconds, 'Counted from the last request.'),
  }),
)
