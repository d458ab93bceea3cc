import type { FastifyInstance } from 'fastify'
import { namedAt } from '../../txn/op.js'
import { untilDeadline } from '../connections/deadline.js'
import { refreshNamed, requireAccess, requireObserved } from '../wire/commit-effects.js'
import { decoderOf } from '../wire/decode.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
import { fingerprinted, oneShotOf } from '../wire/one-shot.js'
import * as schemas from '../wire/schemas/txn.js'
import type { AppContext } from './context.js'

export function txnRoutes(app: FastifyInstance, { database, limits }: AppContext): void {
  const decode = decoderOf(schemas.oneShot.body, limits)
  app.post(
    '/v1/txn',
    { schema: schemas.oneShot, config: { access: 'read', query: ['timeout_ms'] } },
    async (request, reply) => {
      const asked = oneShotOf(await decode(request), request.grant, limits)
      const idempotency = await idempotencyOf(request, fingerprinted(asked))
      if (asked.commitEffects !== undefined) {
        await refreshNamed(asked.commitEffects, request.grant, database)
        requireAccess(asked.commitEffects, request.grant, database)
        if (idempotency === undefined) await requireObserved(asked.commitEffects, database)
      }
      const outcome = await untilDeadline(request, reply, (signal, handover) =>
        database.transact({ ...asked, caller: request.grant.identity, idempotency, signal, handover }),
      )
      const { results, ...times } = outcome.answer
      return answerOutcome(request, reply, outcome, { ...times, results: namedAt(results, times.commitTs) })
    },
  )
}
