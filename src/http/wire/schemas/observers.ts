import {
  ATTEMPTS_MAX,
  BACKOFF_MS_MAX,
  CLAIM_LIMIT_MAX,
  CLAIM_WAIT_MS_MAX,
  DEPTH_MAX,
  LEASE_MS_MAX,
  LEASE_MS_MIN,
} from '../../../limits.js'
import { MARK_KINDS } from '../../../percolator/cell.js'
import { answering } from './call-schema.js'
import { ObserverName } from './riders.js'
import { Type } from './schema.js'
import {
  Count,
  Flag,
  givenRange,
  Key,
  Milliseconds,
  Nothing,
  object,
  oneOf,
  optional,
  Timestamp,
  TimestampOrZero,
  Value,
} from './values.js'

const Attempts = Type.Integer({ minimum: 0, maximum: ATTEMPTS_MAX })
const BackoffMs = Type.Integer({ minimum: 0, maximum: BACKOFF_MS_MAX })
const Depth = Type.Integer({ minimum: 0, maximum: DEPTH_MAX })
const LeaseMs = Type.Integer({ minimum: LEASE_MS_MIN, maximum: LEASE_MS_MAX })
const Keys = Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax' })
const Moment = Type.String({ format: 'date-time' })
const WorkerName = Type.String({
  pattern: '^[^\\p{Cc}\\p{Cs}]{1,255}$',
  title: 'be 1 to 255 characters, none of which is a control character',
})
const claimName = { key: Key, fence: Timestamp }

const State = Type.Object({
  name: ObserverName,
  ...givenRange,
  max_attempts: Attempts,
  backoff_ms: BackoffMs,
  backoff_max_ms: BackoffMs,
  max_depth: Depth,
  since_ts: Timestamp,
  state: oneOf(['running', 'paused', 'backfilling']),
  pending: Count,
  pending_is_exact: Type.Boolean(),
  claimed: Count,
  delayed: Count,
  parked: Count,
  lag_ms: Milliseconds,
  acks: Count,
  conflicts: Count,
  workers: Type.Array(Type.Object({ worker: WorkerName, claimed: Count, seen_at: Moment })),
})

export const put = {
  body: object({
    ...givenRange,
    backfill: Flag,
    max_attempts: optional(Attempts),
    backoff_ms: optional(BackoffMs),
    backoff_max_ms: optional(BackoffMs),
    max_depth: optional(Depth),
  }),
  answers: { 200: { json: State }, 201: { json: State } },
}

export const list = answering(Type.Object({ observers: Type.Array(State) }))
export const get = answering(State)
export const remove = answering(Nothing)

export const claim = {
  body: object({
    worker: WorkerName,
    limit: optional(Type.Integer({ minimum: 1, maximum: CLAIM_LIMIT_MAX })),
    wait_ms: optional(Type.Integer({ minimum: 0, maximum: CLAIM_WAIT_MS_MAX })),
    lease_ms: optional(LeaseMs),
    values: Flag,
  }),
  ...answering(
    Type.Object({
      notifications: Type.Array(
        Type.Object({
          key: Key,
          commit_ts: Timestamp,
          kind: oneOf(MARK_KINDS),
          fence: Timestamp,
          attempt: Count,
          found: Flag,
          value: optional(Value),
        }),
      ),
    }),
  ),
}

export const extend = {
  body: object({
    claims: Type.Array(object(claimName), { atMost: 'requestKeysMax' }),
    lease_ms: optional(LeaseMs),
  }),
  ...answering(Type.Object({ lost: Type.Array(Type.Object(claimName)) })),
}

export const release = {
  body: object({
    claims: Type.Array(object({ ...claimName, error: optional(Type.String()), retry_after_ms: optional(BackoffMs) }), {
      atMost: 'requestKeysMax',
    }),
  }),
  ...answering(Type.Object({ released: Count, parked: Type.Array(Key) })),
}

export const notify = {
  body: object({ keys: Keys }),
  ...answering(Type.Object({ notified: Count, ts: Timestamp })),
}

export const backfill = { body: object({}), answers: { 202: { json: State } } }
/** Of `pause` and `resume`. */
export const change = { body: object({}), ...answering(State) }

export const parked = answering(
  Type.Object({
    parked: Type.Array(
      Type.Object({
        key: Key,
        commit_ts: TimestampOrZero,
        attempts: Count,
        error: Type.String(),
        parked_at: Moment,
      }),
    ),
    cursor: optional(Type.String()),
  }),
)

export const retry = {
  body: object({ keys: optional(Keys) }),
  ...answering(Type.Object({ retried: Count })),
}
export const skip = { body: object({ keys: Keys }), ...answering(Type.Object({ skipped: Count })) }
