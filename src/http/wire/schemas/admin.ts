import { PIN_TTL_MS_MAX } from '../../../limits.js'
import { answering } from './call-schema.js'
import { Type } from './schema.js'
import { Count, Milliseconds, Nothing, object, oneOf, optional, range, Timestamp, TimestampOrZero } from './values.js'

export const HeldBackBy = optional(oneOf(['pin', 'transaction', 'lock', 'feed', 'consumer']))

export const collect = {
  body: object({ safe_point: optional(Timestamp), life_time_ms: optional(Milliseconds) }),
  ...answering(Type.Object({ safe_point: TimestampOrZero, versions_removed: Count, held_back_by: HeldBackBy })),
}

export const compact = {
  body: object(range),
  ...answering(Type.Object({ disk_bytes_before: Count, disk_bytes: Count })),
}

const PinTtl = Type.Integer({ minimum: 1, maximum: PIN_TTL_MS_MAX })
const Pin = Type.Object({ pin: Type.String(), ts: Timestamp, expires_at: Type.String({ format: 'date-time' }) })

export const createPin = {
  body: object({ ts: optional(Timestamp), ttl_ms: optional(PinTtl) }),
  answers: { 201: { json: Pin } },
}
export const listPins = answering(Type.Object({ pins: Type.Array(Pin) }))
export const renewPin = { body: object({ ttl_ms: optional(PinTtl) }), ...answering(Pin) }
export const removePin = answering(Nothing)

export const backup = { answers: { 200: { octets: true } } } as const

export const Restore = Type.Object({ id: Type.String(), ts: Timestamp, pairs: Count, bytes: Count })
export const restore = answering(Restore)
