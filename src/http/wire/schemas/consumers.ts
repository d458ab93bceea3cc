import { HOLD_MS_MIN, TIMER_MS_MAX } from '../../../limits.js'
import { answering } from './call-schema.js'
import { ConsumerName } from './riders.js'
import { Type } from './schema.js'
import { givenRange, Milliseconds, Nothing, object, optional, TimestampOrZero } from './values.js'

const State = Type.Object({
  name: ConsumerName,
  ...givenRange,
  position: TimestampOrZero,
  hold_ms: Milliseconds,
  lag_ms: Milliseconds,
  is_lost: Type.Boolean(),
})

export const put = {
  body: object({
    ...givenRange,
    since_ts: optional(TimestampOrZero),
    hold_ms: optional(Type.Integer({ minimum: HOLD_MS_MIN, maximum: TIMER_MS_MAX })),
  }),
  answers: { 200: { json: State }, 201: { json: State } },
}

export const list = answering(Type.Object({ consumers: Type.Array(State) }))
export const get = answering(State)
export const remove = answering(Nothing)
export const ack = { body: object({ ts: TimestampOrZero }), ...answering(State) }
export const reset = { body: object({ since_ts: optional(TimestampOrZero) }), ...answering(State) }
