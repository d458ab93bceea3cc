import type { Grant } from '../../access/grant.js'
import { invalid, KvError } from '../../errors/kv-error.js'
import { LEASE_CHECKS_MAX, type Limits, LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { LeaseGuard } from '../../percolator/commit-effects.js'
import type { Check } from '../../txn/check.js'
import type { OneShot } from '../../txn/one-shot.js'
import { commitEffectsOf } from './commit-effects.js'
import type { Decoded } from './decode.js'
import type { Static } from './schemas/schema.js'
import type { oneShot } from './schemas/txn.js'
import { isWrite, opOf, requireKeysWithin } from './wire-op.js'

export function oneShotOf(body: Decoded<Static<typeof oneShot.body>>, grant: Grant, limits: Limits): OneShot {
  const { checks = [], ops = [], isolation, maxRetries = MAX_RETRIES_DEFAULT } = body
  const { keyChecks, leases } = splitChecks(checks)
  if (ops.some(isWrite)) grant.requireWrite()
  const commitEffects = commitEffectsOf({ ...body, leases }, grant, limits)
  const asked = ops.map(opOf)
  requireKeysWithin(asked, limits)
  return { checks: keyChecks, ops: asked, isolation, commitEffects, maxRetries, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
}

/** What the fingerprint of an Idempotency-Key is made of. It is stored, so names and their order stay as they are. */
export function fingerprinted({ checks, ops, isolation, commitEffects, maxRetries, lockWaitMs }: OneShot): object {
  return { checks, ops, isolation, riders: commitEffects, maxRetries, lockWaitMs }
}

type WireCheck = NonNullable<Decoded<Static<typeof oneShot.body>>['checks']>[number]

/** @throws KvError `invalid_argument`; `payload_too_large` for too many leases. */
function splitChecks(checks: readonly WireCheck[]): { keyChecks: Check[]; leases: LeaseGuard[] } {
  const keyChecks: Check[] = []
  const leases: LeaseGuard[] = []
  for (const [index, check] of checks.entries()) {
    const { key, exists, value, commitTs, lease, fence } = check
    const isOnKey = exists !== undefined || value !== undefined || commitTs !== undefined
    if (lease !== undefined) {
      if (key !== undefined || isOnKey)
        throw invalid(`checks[${index}].lease`, `checks[${index}] has both a lease and conditions on a key`)
      if (fence === undefined) throw invalid(`checks[${index}].fence`, `checks[${index}].fence is missing`)
      leases.push({ lease, fence, index })
    } else {
      if (fence !== undefined) throw invalid(`checks[${index}].lease`, `checks[${index}].lease is missing`)
      if (key === undefined) throw invalid(`checks[${index}].key`, `checks[${index}].key is missing`)
      if (!isOnKey) throw invalid(`checks[${index}]`, `checks[${index}] needs exists, value or commit_ts`)
      keyChecks.push({ ...check, key })
    }
  }
  if (leases.length > LEASE_CHECKS_MAX) {
    const detail = `checks has over ${LEASE_CHECKS_MAX} leases`
    throw new KvError('payload_too_large', detail, { field: 'checks', limit: LEASE_CHECKS_MAX })
  }
  // Without leases the index of a check is that of its list.
  return { keyChecks: leases.length === 0 ? keyChecks : withPlaces(checks, keyChecks), leases }
}

function withPlaces(all: readonly WireCheck[], keyChecks: readonly Check[]): Check[] {
  const places: number[] = []
  for (const [index, { lease }] of all.entries()) if (lease === undefined) places.push(index)
  return keyChecks.map((check, i) => ({ ...check, index: places[i] }))
}
