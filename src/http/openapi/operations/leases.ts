import { LEASE_NAME } from '../../../leases/rules/lease.js'
import { LIST_LIMIT_MAX } from '../../../limits.js'
import type { Operations, Parameter } from '../operation.js'
import { LIST_QUERY } from '../parameters.js'

const NAME: Parameter = {
  description:
    'Letters, digits, `.`, `_`, `-` and `/`, which may be written as `%2F` or as it is. A token reaches names as it does keys.',
  schema: { type: 'string', pattern: LEASE_NAME.pattern },
}

export const leases: Operations = {
  'GET /v1/leases': {
    id: 'listLeases',
    tag: 'Leases',
    summary: 'List the leases that are held',
    description: 'Only those whose names the token reaches.',
    query: LIST_QUERY,
  },
  'PUT /v1/leases/{name}': {
    id: 'putLease',
    tag: 'Leases',
    summary: 'Take a lease, or renew it',
    description: `One holder at a time has the lease, for \`ttl_ms\` from its last renewal. What becomes of the request:

- The lease is free, or has run out: it is granted under a new \`fence\`, and the grant is on disk.
- The same holder has it: it is renewed under the same \`fence\`. This is in memory, unless \`ttl_ms\` is another.
- Another holder has it: the request waits in the order of arrival, and after \`wait_ms\` the answer is 423 \`lease_held\`.

A lease alone protects nothing: its holder may have been slower than its \`ttl_ms\` and not know it yet. Work under the lease therefore belongs into [transactions](#transact) with the check \`{"lease", "fence"}\`, which commit only while the lease is held under that \`fence\`.

Time is that of the server, and passes as time does, whatever is done to its clock. A restart counts as a renewal of every lease, with two seconds more; one that had run out may so live again, for its old holder and under its old \`fence\`, unless somebody else was granted it since. Who has waited for longer than a third of \`ttl_ms\` renews the lease before relying on it.`,
    path: { name: NAME },
    problems: ['lease_held', 'not_found', 'precondition_failed'],
  },
  'GET /v1/leases/{name}': {
    id: 'readLease',
    tag: 'Leases',
    summary: 'Who holds a lease',
    description: '404 when it is free.',
    path: { name: NAME },
    query: {
      keys: {
        description: 'Also lists up to so many of the keys that are attached to the lease. Default: none are read.',
        schema: { type: 'integer', minimum: 0, maximum: LIST_LIMIT_MAX },
      },
    },
    problems: ['not_found'],
  },
  'DELETE /v1/leases/{name}': {
    id: 'releaseLease',
    tag: 'Leases',
    summary: 'Release a lease',
    description:
      'The next one who waits gets it. 200 also when it is free already; 412 when another holds it, or the same holder under another `fence`.',
    path: { name: NAME },
    query: {
      holder: {
        description: 'As the lease was taken. Needed.',
        schema: { type: 'string' },
      },
      fence: {
        description: 'Of the grant that is meant. Default: any of this holder.',
        schema: { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER },
      },
    },
    problems: ['precondition_failed'],
  },
}
