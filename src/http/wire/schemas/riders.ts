import { LEASE_NAME } from '../../../leases/rules/lease.js'
import { ACKS_MAX, LEASE_CHECKS_MAX, POSITIONS_MAX } from '../../../limits.js'
import { NAME } from '../../../percolator/name.js'
import { type Static, Type } from './schema.js'
import { described, Key, object, optional, Timestamp, TimestampOrZero } from './values.js'

export const ObserverName = Type.String({
  pattern: NAME.pattern,
  title: NAME.rule,
})

export const ConsumerName = ObserverName

/** The fields of riders in the body of a transaction. */
export const riders = {
  acks: described(
    optional(
      Type.Array(object({ observer: ObserverName, key: Key, fence: described(Timestamp, 'As the claim told it.') }), {
        maxItems: ACKS_MAX,
      }),
    ),
    'Runs of observers that this transaction completes. Both are written, or neither. Each key of an observer once.',
  ),
  notify: described(
    optional(
      Type.Array(object({ observer: ObserverName, keys: Type.Array(Key, { minItems: 1, atMost: 'requestKeysMax' }) }), {
        atMost: 'requestKeysMax',
      }),
    ),
    'Marks keys for observers at the commit, without writing them and without a conflict.',
  ),
  positions: described(
    optional(
      Type.Array(
        object({
          consumer: ConsumerName,
          from: described(TimestampOrZero, 'The position from which the program has read.'),
          ts: described(TimestampOrZero, 'The position that it has come to.'),
        }),
        { maxItems: POSITIONS_MAX },
      ),
    ),
    'Positions of consumers that this transaction moves: it has applied the changes above `from`, up to `ts`. Both are written, or neither. Each consumer once.',
  ),
}

export const LeaseName = Type.String({ pattern: LEASE_NAME.pattern, title: LEASE_NAME.rule })
export const leaseCheck = {
  lease: LeaseName,
  fence: described(Timestamp, 'As the grant told it. The lease must be held under it when the transaction commits.'),
}

/** The riders of a prewrite. Other transactions have the leases among their `checks`. */
export const prewriteRiders = {
  ...riders,
  leases: described(
    optional(Type.Array(object(leaseCheck), { maxItems: LEASE_CHECKS_MAX })),
    'Leases that must be held when the transaction commits; otherwise 412 `precondition_failed`. `index` there is the place in this list.',
  ),
}

const Riders = object(prewriteRiders)
export type Riders = Static<typeof Riders>
