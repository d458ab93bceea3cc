import {
  ATTEMPTS_MAX,
  BACKOFF_MS_MAX,
  FEED_LIMIT_MAX,
  HOLD_MS_MIN,
  TIMER_MS_MAX,
  WEBHOOK_TIMEOUT_MS_MAX,
  WEBHOOK_TIMEOUT_MS_MIN,
} from '../../../limits.js'
import { answering, answeringPage } from './call-schema.js'
import { ConsumerName } from './riders.js'
import { Type } from './schema.js'
import {
  Count,
  described,
  givenRange,
  Milliseconds,
  Nothing,
  object,
  oneOf,
  optional,
  Timestamp,
  TimestampOrZero,
} from './values.js'

const Moment = Type.String({ format: 'date-time' })
const BackoffMs = Type.Integer({ minimum: 0, maximum: BACKOFF_MS_MAX })

const options = {
  batch: described(
    Type.Integer({ minimum: 1, maximum: FEED_LIMIT_MAX }),
    'Most transactions in one request, which also ends with the one that reaches 1 MiB. Default: 100.',
  ),
  timeout_ms: described(
    Type.Integer({ minimum: WEBHOOK_TIMEOUT_MS_MIN, maximum: WEBHOOK_TIMEOUT_MS_MAX }),
    'Longest time of a request. Default: 10 000.',
  ),
  max_attempts: described(
    Type.Integer({ minimum: 0, maximum: ATTEMPTS_MAX }),
    'Failed attempts until the webhook is parked; 0: never. Default: 64, which takes some nine hours.',
  ),
  backoff_ms: described(
    BackoffMs,
    'Wait after the first failed attempt; it doubles with each further one. Default: 1000.',
  ),
  backoff_max_ms: described(BackoffMs, 'The longest wait after a failed attempt. Default: 600 000.'),
}

const Url = Type.String()

const State = Type.Object({
  name: ConsumerName,
  url: Url,
  ...givenRange,
  ...options,
  state: described(
    oneOf(['running', 'retrying', 'parked', 'gap']),
    '`retrying`: the last attempt has failed. `parked`: it needs a retry or a skip. `gap`: changes above the position were collected before they were delivered, or its consumer was deleted; it needs a reset.',
  ),
  position: described(
    optional(TimestampOrZero),
    'Everything at or below it is delivered. Absent: its consumer was deleted.',
  ),
  hold_ms: described(optional(Milliseconds), 'The position holds collection back until it is this old.'),
  lag_ms: described(optional(Milliseconds), 'Age of the position; 0 when nothing has been committed above it.'),
  attempts: described(Count, 'Failed attempts of the batch above the position.'),
  error: described(optional(Type.String()), 'Of the last of them, with the beginning of the answer.'),
  failing_up_to: described(optional(Timestamp), 'That batch ends here: a skip moves the position to it.'),
  next_attempt_at: described(optional(Moment), 'While it is retrying.'),
  parked_at: optional(Moment),
  deliveries: described(Count, 'Batches that were delivered by the server that answers, since its start.'),
  failures: described(Count, 'Failed attempts of the server that answers, since its start.'),
})

const Secret = described(
  Type.String(),
  'Signs the requests: `whsec_` and base64 of 24 to 64 bytes. It is never shown again.',
)

const Made = Type.Object({
  ...State.properties,
  secret: described(optional(Secret), 'The one that the server has made.'),
})

export const put = {
  body: object({
    url: described(Url, 'One that `--webhook-targets` of the server allows.'),
    ...givenRange,
    since_ts: described(optional(TimestampOrZero), 'Where a new webhook begins. Default: now.'),
    hold_ms: described(
      optional(Type.Integer({ minimum: HOLD_MS_MIN, maximum: TIMER_MS_MAX })),
      'For how long the position holds collection back. Default: a day. At most `--hold-ms-max` of the server.',
    ),
    secret: described(
      optional(Secret),
      'Absent: the server makes one for a new webhook, and an old one keeps its own.',
    ),
    batch: optional(options.batch),
    timeout_ms: optional(options.timeout_ms),
    max_attempts: optional(options.max_attempts),
    backoff_ms: optional(options.backoff_ms),
    backoff_max_ms: optional(options.backoff_max_ms),
  }),
  answers: { 200: { json: Made }, 201: { json: Made } },
}

export const list = answeringPage('webhooks', State, 'In order of names.')
export const get = answering(State)
export const remove = answering(Nothing)
export const change = { body: object({}), ...answering(State) }
export const reset = {
  body: object({ since_ts: described(optional(TimestampOrZero), 'The new position, up or down. Default: now.') }),
  ...answering(State),
}
