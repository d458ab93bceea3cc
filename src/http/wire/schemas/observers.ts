import {
  ATTEMPTS_MAX,
  BACKOFF_MS_MAX,
  CLAIM_LIMIT_MAX,
  CLAIM_WAIT_MS_MAX,
  DEPTH_MAX,
  LEASE_MS_MAX,
  LEASE_MS_MIN,
} from '../../../limits.js'
import { MARK_KINDS } from '../../../observers/rules/cell.js'
import { answering, answeringPage } from './call-schema.js'
import { ObserverName } from './riders.js'
import { Type } from './schema.js'
import {
  Count,
  described,
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

const options = {
  max_attempts: described(Attempts, 'Failed runs of a cell until it is parked; 0: never. Default: 16.'),
  backoff_ms: described(BackoffMs, 'Wait after the first failed run; it doubles with each further one. Default: 200.'),
  backoff_max_ms: described(BackoffMs, 'The longest wait after a failed run. Default: 60 000.'),
  max_depth: described(
    Depth,
    'How long a chain of runs that mark each other may get; 0: any. A deeper mark is parked. Default: 64.',
  ),
}

const State = Type.Object({
  name: ObserverName,
  ...givenRange,
  ...options,
  since_ts: described(
    Timestamp,
    'Everything that commits above it is marked, except a commit ahead of the clock that was made before the registration.',
  ),
  state: described(
    oneOf(['running', 'paused', 'backfilling']),
    '`paused`: nothing is handed out, and keys are marked all the same. `backfilling`: keys that were there already are being marked.',
  ),
  pending: described(Count, 'Cells to run, claimed and delayed ones included.'),
  pending_is_exact: described(Type.Boolean(), 'False: `pending` was counted a while ago.'),
  claimed: described(Count, 'Cells that workers have.'),
  delayed: described(Count, 'Cells that wait after a failed run.'),
  parked: described(Count, 'Cells that nobody runs any more: they failed too often, or are too deep.'),
  lag_ms: described(Milliseconds, 'Age of the oldest change that is known to be uncovered.'),
  acks: described(Count, 'Runs that committed, since the start of the server.'),
  conflicts: described(Count, 'Runs that were refused with `write_conflict`, since the start of the server.'),
  workers: described(
    Type.Array(Type.Object({ worker: WorkerName, claimed: Count, seen_at: Moment })),
    'The workers that were seen last.',
  ),
})

export const put = {
  body: object({
    ...givenRange,
    backfill: described(Flag, 'Also marks the keys that are there already. Default: false.'),
    max_attempts: optional(options.max_attempts),
    backoff_ms: optional(options.backoff_ms),
    backoff_max_ms: optional(options.backoff_max_ms),
    max_depth: optional(options.max_depth),
  }),
  answers: { 200: { json: State }, 201: { json: State } },
}

export const list = answeringPage('observers', State, 'In order of names.')
export const get = answering(State)
export const remove = answering(Nothing)

export const claim = {
  body: object({
    worker: described(WorkerName, 'A name for people.'),
    limit: described(optional(Type.Integer({ minimum: 1, maximum: CLAIM_LIMIT_MAX })), 'Cells to take. Default: 1.'),
    wait_ms: described(
      optional(Type.Integer({ minimum: 0, maximum: CLAIM_WAIT_MS_MAX })),
      'How long to wait for the first cell. Default: 0.',
    ),
    lease_ms: described(optional(LeaseMs), 'After this time the cells are handed out again. Default: 10 000.'),
    values: described(Flag, 'Reads the keys, too.'),
  }),
  ...answering(
    Type.Object({
      notifications: Type.Array(
        Type.Object({
          key: Key,
          commit_ts: described(Timestamp, 'Of the newest change of the key.'),
          kind: described(oneOf(MARK_KINDS), 'What has marked the key.'),
          fence: described(
            Timestamp,
            'Names this claim in its acknowledgement, and is a timestamp at which the run may read.',
          ),
          attempt: described(Count, '1 for the first run.'),
          found: described(
            Flag,
            'With `values`: whether the key had a value at the fence. Absent where the key was locked.',
          ),
          value: described(optional(Value), 'With `values`: as of the fence.'),
          old: described(
            optional(Value),
            'With `values`, of a key that has expired and is absent: the value that it had, unless the version was collected.',
          ),
        }),
      ),
    }),
  ),
}

export const extend = {
  body: object({
    claims: Type.Array(object(claimName), { atMost: 'requestKeysMax' }),
    lease_ms: described(optional(LeaseMs), 'From now on. Default: as long as that of the claim.'),
  }),
  ...answering(
    Type.Object({
      lost: described(
        Type.Array(Type.Object(claimName)),
        'Claims that are not in force any more. The others have a new lease.',
      ),
    }),
  ),
}

export const release = {
  body: object({
    claims: Type.Array(
      object({
        ...claimName,
        error: described(
          optional(Type.String()),
          'Counts as a failed run; up to 1 KiB of it is kept. Absent: nothing is counted.',
        ),
        retry_after_ms: described(optional(BackoffMs), 'Delays the cell this long instead of by the back-off.'),
      }),
      {
        atMost: 'requestKeysMax',
      },
    ),
  }),
  ...answering(
    Type.Object({
      released: described(Count, 'Claims that were in force. Others are passed over.'),
      parked: described(Type.Array(Key), 'Keys whose cells are parked by this.'),
    }),
  ),
}

export const notify = {
  body: object({ keys: described(Keys, 'Each must be in the range of the observer.') }),
  ...answering(Type.Object({ notified: Count, ts: described(Timestamp, 'The `commit_ts` of the marks.') })),
}

export const backfill = { body: object({}), answers: { 202: { json: State } } }
export const change = { body: object({}), ...answering(State) }

export const parked = answering(
  Type.Object({
    parked: Type.Array(
      Type.Object({
        key: Key,
        commit_ts: described(TimestampOrZero, 'Of the newest change of the key.'),
        attempts: described(Count, 'Runs that failed.'),
        error: described(Type.String(), 'Of the last run.'),
        parked_at: Moment,
      }),
    ),
    cursor: described(optional(Type.String()), 'Continues the list. Absent on the last page.'),
  }),
)

export const retry = {
  body: object({ keys: described(optional(Keys), 'Default: all that are parked.') }),
  ...answering(Type.Object({ retried: described(Count, 'Keys that are not parked are passed over.') })),
}
export const skip = {
  body: object({ keys: Keys }),
  ...answering(Type.Object({ skipped: described(Count, 'Keys that are not parked are passed over.') })),
}
