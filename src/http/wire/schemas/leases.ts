import { LEASE_HOLDER } from '../../../leases/rules/lease.js'
import { LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN, LEASE_WAIT_MS_MAX } from '../../../limits.js'
import { answering, answeringPage } from './call-schema.js'
import { LeaseName } from './riders.js'
import { Type } from './schema.js'
import { described, Key, object, optional, Timestamp } from './values.js'

const Holder = Type.String({ pattern: LEASE_HOLDER.pattern, title: LEASE_HOLDER.rule })
const Ttl = Type.Integer({ minimum: LEASE_TTL_MS_MIN, maximum: LEASE_TTL_MS_MAX })

const fields = {
  name: LeaseName,
  holder: Holder,
  fence: described(Timestamp, 'Timestamp of the grant. Each later grant of this name has a higher one.'),
  ttl_ms: described(Ttl, 'How long the lease lives after a renewal.'),
  expires_at: described(
    Type.String({ format: 'date-time' }),
    'When it ends unless it is renewed, by the clock of the server. Count `ttl_ms` from when you sent the request instead.',
  ),
}
const State = Type.Object(fields)

export const put = {
  body: object({
    holder: described(Holder, 'Who asks. The same holder gets the same lease again.'),
    ttl_ms: described(Ttl, 'How long the lease lives without another renewal.'),
    wait_ms: described(
      optional(Type.Integer({ minimum: 0, maximum: LEASE_WAIT_MS_MAX })),
      'How long to wait for the lease of another. Default: 0.',
    ),
    fence: described(optional(Timestamp), 'Renews this grant only. With another one in force: 412, without a wait.'),
  }),
  ...answering(State),
}

export const list = answeringPage('leases', State, 'In order of names.')
export const get = answering(
  Type.Object({
    ...fields,
    keys: described(optional(Type.Array(Key)), 'The first attached keys, in order, of those that the token reaches.'),
    more_keys: described(optional(Type.Boolean()), 'Whether more keys are attached.'),
  }),
)
export const remove = answering(
  Type.Object({
    deleting: described(
      optional(Type.Boolean()),
      'Other transactions have locked keys that are attached to the lease. They are deleted before the lease is granted again.',
    ),
  }),
)
