import { PIN_TTL_MS_MAX } from '../../../limits.js'
import { answering, answeringPage } from './call-schema.js'
import { Type } from './schema.js'
import {
  Count,
  described,
  Milliseconds,
  Nothing,
  object,
  oneOf,
  optional,
  range,
  Timestamp,
  TimestampOrZero,
} from './values.js'

export const HeldBackBy = described(
  optional(oneOf(['pin', 'transaction', 'lock', 'feed', 'consumer'])),
  'What kept the safe point down: a pin, an open interactive transaction, the lock of a transaction that lives, an open stream of the feed, or a consumer. Absent: nothing did.',
)

export const collect = {
  body: object({
    safe_point: described(optional(Timestamp), 'Collect up to here. Does not go with `life_time_ms`.'),
    life_time_ms: described(
      optional(Milliseconds),
      'How long old versions stay readable. Default: `--gc-life-time` of the server, ten minutes by default.',
    ),
  }),
  ...answering(
    Type.Object({
      safe_point: described(TimestampOrZero, 'Reads below it are 410 `ts_below_safe_point`.'),
      versions_removed: described(Count, 'Write records.'),
      held_back_by: HeldBackBy,
    }),
  ),
}

export const compact = {
  body: object(range),
  ...answering(Type.Object({ disk_bytes_before: Count, disk_bytes: Count })),
}

const PinTtl = described(
  optional(Type.Integer({ minimum: 1, maximum: PIN_TTL_MS_MAX })),
  'How long the pin lasts. Default: an hour.',
)
export const Pin = Type.Object({
  pin: described(Type.String(), 'Names the pin in other calls.'),
  ts: described(Timestamp, 'The snapshot that stays readable.'),
  expires_at: Type.String({ format: 'date-time' }),
})

export const createPin = {
  body: object({ ts: described(optional(Timestamp), 'The snapshot to pin. Default: now.'), ttl_ms: PinTtl }),
  answers: { 201: { json: Pin } },
}
export const listPins = answeringPage('pins', Pin, 'In order of their snapshots, the oldest first.')
export const renewPin = { body: object({ ttl_ms: PinTtl }), ...answering(Pin) }
export const removePin = answering(Nothing)

export const backup = { answers: { 200: { octets: true } } } as const

export const Restore = Type.Object({
  id: described(Type.String(), 'Of the backup.'),
  ts: described(Timestamp, 'The snapshot that the backup holds.'),
  pairs: described(Count, 'Pairs stored.'),
  bytes: described(Count, 'Of their keys and values.'),
})
export const restore = answering(Restore)
