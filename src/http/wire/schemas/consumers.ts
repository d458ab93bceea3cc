import { HOLD_MS_MIN, TIMER_MS_MAX } from '../../../limits.js'
import { answering, answeringPage } from './call-schema.js'
import { ConsumerName } from './riders.js'
import { Type } from './schema.js'
import { described, givenRange, Milliseconds, Nothing, object, optional, TimestampOrZero } from './values.js'

const State = Type.Object({
  name: ConsumerName,
  ...givenRange,
  position: described(
    TimestampOrZero,
    'All changes at or below it are done. It moves on by itself every ten seconds where the range has no change.',
  ),
  hold_ms: described(Milliseconds, 'The position holds collection back until it is this old.'),
  lag_ms: described(Milliseconds, 'Age of the position; 0 when nothing has been committed above it.'),
  is_lost: described(
    Type.Boolean(),
    'A collection has passed the position: changes above it are missing until a reset.',
  ),
})

export const put = {
  body: object({
    ...givenRange,
    since_ts: described(optional(TimestampOrZero), 'Where a new consumer begins. Default: now.'),
    hold_ms: described(
      optional(Type.Integer({ minimum: HOLD_MS_MIN, maximum: TIMER_MS_MAX })),
      'For how long the position holds collection back. Default: a day. At most `--hold-ms-max` of the server.',
    ),
  }),
  answers: { 200: { json: State }, 201: { json: State } },
}

export const list = answeringPage('consumers', State, 'In order of names.')
export const get = answering(State)
export const remove = answering(Nothing)
export const ack = {
  body: object({
    ts: described(
      TimestampOrZero,
      'The position becomes at least this, or `resolved_ts` if that is lower. It never falls.',
    ),
  }),
  ...answering(State),
}
export const reset = {
  body: object({ since_ts: described(optional(TimestampOrZero), 'The new position, up or down. Default: now.') }),
  ...answering(State),
}
