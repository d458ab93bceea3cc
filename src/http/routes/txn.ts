import type { FastifyInstance } from 'fastify'
import { invalid } from '../../errors/kv-error.js'
import { LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { Check } from '../../txn/check.js'
import { hangUp } from '../connections/answer-end.js'
import { decoderOf } from '../wire/decode.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
import * as schemas from '../wire/schemas/txn.js'
import { isWrite, opOf } from '../wire/wire-op.js'
import type { AppContext } from './context.js'

export function txnRoutes(app: FastifyInstance, { database, limits }: AppContext): void {
  const decode = decoderOf(schemas.oneShot.body, limits)
  app.post('/v1/txn', { schema: schemas.oneShot, config: { access: 'read' } }, async (request, reply) => {
    const { checks = [], ops = [], isolation, maxRetries = MAX_RETRIES_DEFAULT } = await decode(request)
    checks.forEach(requireCondition)
    if (ops.some(isWrite)) request.grant.requireWrite()
    const asked = { checks, ops: ops.map(opOf), isolation, maxRetries, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
    const idempotency = await idempotencyOf(request, asked)
    const outcome = await database.transact({ ...asked, idempotency, signal: hangUp(reply.raw) })
    return answerOutcome(request, reply, outcome, outcome.answer)
  })
}

function requireCondition(check: Check, index: number): void {
  if (check.exists === undefined && check.value === undefined && check.commitTs === undefined)
    throw invalid(`checks[${index}]`, `checks[${index}] needs exists, value or commit_ts`)
}
