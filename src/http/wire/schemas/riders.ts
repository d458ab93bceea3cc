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

export const riders = {
  acks: described(
    optional(
      Type.Array(object({ observer: ObserverName, key: Key, fence: described(Timestamp, 'As the claim told it.') }), {
        maxItems: ACKS_MAX,
      }),
    ),
    'Runs of observers that this transaction completes. Both are written, or neither. Each key of an observer once (400, as for a fence of the future, a key outside of the range and a commit ahead of the clock). The run has seen every change up to the fence, in an interactive transaction or a prewrite up to the `start_ts`: begin these after the claim. A later change is left to another run. The key may be written too, which does not mark it again; other keys of the range are marked.',
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
          from: described(
            TimestampOrZero,
            'The position from which the program has read: `position` at first, then the `ts` of its last transaction. Moves of the server do not count.',
          ),
          ts: described(
            TimestampOrZero,
            'The position that it has come to: `next_ts` of a page, `resolved_ts` or an `id` of a stream. 400 above both `from` and `resolved_ts`, and below `from`.',
          ),
        }),
        { maxItems: POSITIONS_MAX },
      ),
    ),
    'Positions of consumers that this transaction moves: it has applied the changes above `from`, up to `ts`. Both are written, or neither. Each consumer once. Refused where somebody has acknowledged since `from`: 409 `write_conflict`, `acknowledged`.',
  ),
}

export const LeaseName = Type.String({ pattern: LEASE_NAME.pattern, title: LEASE_NAME.rule })
export const leaseCheck = {
  lease: LeaseName,
  fence: described(Timestamp, 'As the grant told it. The lease must be held under it when the transaction commits.'),
}

export const prewriteRiders = {
  ...riders,
  leases: described(
    optional(Type.Array(object(leaseCheck), { maxItems: LEASE_CHECKS_MAX })),
    'Leases that must be held when the transaction commits; otherwise 412 `precondition_failed`. `index` there is the place in this list. On a shared store 501: validate_reads checks them there.',
  ),
}

const Riders = object(prewriteRiders)
export type Riders = Static<typeof Riders>
