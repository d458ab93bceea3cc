import type { Grant } from '../../access/grant.js'
import { invalid } from '../../errors/kv-error.js'
import { type Limits, LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { Check } from '../../txn/check.js'
import type { OneShot } from '../../txn/one-shots.js'
import type { Decoded } from './decode.js'
import { ridersOf } from './riders.js'
import type { Static } from './schemas/schema.js'
import type { oneShot } from './schemas/txn.js'
import { isWrite, opOf, requireFewKeys } from './wire-op.js'

/**
 * The transaction of a body of `POST /v1/txn`.
 * @throws KvError `invalid_argument`; `forbidden` when the caller may not write; the errors of `ridersOf`.
 */
export function oneShotOf(body: Decoded<Static<typeof oneShot.body>>, grant: Grant, limits: Limits): OneShot {
  const { checks = [], ops = [], isolation, maxRetries = MAX_RETRIES_DEFAULT } = body
  checks.forEach(requireCondition)
  if (ops.some(isWrite)) grant.requireWrite()
  const riders = ridersOf(body, grant, limits)
  const asked = ops.map(opOf)
  requireFewKeys(asked, limits)
  return { checks, ops: asked, isolation, riders, maxRetries, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
}

function requireCondition(check: Check, index: number): void {
  if (check.exists === undefined && check.value === undefined && check.commitTs === undefined)
    throw invalid(`checks[${index}]`, `checks[${index}] needs exists, value or commit_ts`)
}
