import { ACKS_MAX, POSITIONS_MAX } from '../../../limits.js'
import { NAME } from '../../../percolator/name.js'
import { type Static, Type } from './schema.js'
import { Key, object, optional, Timestamp, TimestampOrZero } from './values.js'

export const ObserverName = Type.String({
  pattern: NAME.pattern,
  title: NAME.rule,
})

export const ConsumerName = ObserverName

/** The fields of riders in the body of a transaction. */
export const riders = {
  acks: optional(Type.Array(object({ observer: ObserverName, key: Key, fence: Timestamp }), { maxItems: ACKS_MAX })),
  notify: optional(
    Type.Array(object({ observer: ObserverName, keys: Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax' }) }), {
      atMost: 'requestKeysMax',
    }),
  ),
  positions: optional(
    Type.Array(object({ consumer: ConsumerName, from: TimestampOrZero, ts: TimestampOrZero }), {
      maxItems: POSITIONS_MAX,
    }),
  ),
}

const Riders = object(riders)
export type Riders = Static<typeof Riders>
