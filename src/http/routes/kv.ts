import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { keyText } from '../../bytes/key-text.js'
import { isKvError } from '../../errors/kv-error.js'
import { MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { GetAnswer } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import type { Op } from '../../txn/op.js'
import { rawBodies, rawValueOf } from '../admission/raw-bodies.js'
import { hangUp } from '../connections/answer-end.js'
import { answer } from '../wire/answer.js'
import { answerVersion, preconditionFailed } from '../wire/answer-version.js'
import { decoderOf } from '../wire/decode.js'
import { checksOf, preconditionsOf } from '../wire/etag.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
import { KEY_ROUTE, keyOf } from '../wire/key-url.js'
import { lockWaitMs, queryTimestamp, type RawQuery } from '../wire/query.js'
import { KvBatchGetBody } from '../wire/schemas.js'
import type { AppContext } from './context.js'
import { readNow } from './read-now.js'

/** `/v1/kv/{key}` and `/v1/kv/batch_get`: one key or some, each call a transaction of its own. */
export function kvRoutes(app: FastifyInstance, context: AppContext): void {
  const { store, coordinator, oneShots, limits } = context
  app.get(KEY_ROUTE, { config: { access: 'read', query: ['ts', 'at', 'lock_wait_ms'] } }, (request, reply) => {
    const query = request.query as RawQuery
    const key = keyOf(request, limits)
    const ts = queryTimestamp(query)
    const waitMs = lockWaitMs(query)
    const send = (found: GetAnswer): FastifyReply => answerVersion(request, reply, key, found.found ? found : undefined)
    const known = store.known({ key, ts })
    if (known !== undefined) return void send(known)
    return coordinator.resolver.resolving(waitMs, () => store.get({ key, ts }), hangUp(reply.raw)).then(send)
  })

  async function write(request: FastifyRequest, reply: FastifyReply, key: Buffer, op: Op): Promise<FastifyReply> {
    const checks = checksOf(key, preconditionsOf(request.headers))
    const wait = lockWaitMs(request.query as RawQuery)
    const idempotency = await idempotencyOf(request, { checks, op })
    const txn = {
      checks,
      ops: [op],
      maxRetries: MAX_RETRIES_DEFAULT,
      lockWaitMs: wait,
      idempotency,
      signal: hangUp(reply.raw),
    }
    try {
      const outcome = await oneShots.run(txn)
      return answerOutcome(request, reply, outcome, { commitTs: outcome.answer.commitTs })
    } catch (error) {
      if (isKvError(error, 'precondition_failed')) throw preconditionFailed(key, error.fields.commitTs)
      throw error
    }
  }

  rawBodies(app, context, (scope) => {
    scope.delete(KEY_ROUTE, { config: { access: 'write', query: ['lock_wait_ms'] } }, async (request, reply) => {
      const key = keyOf(request, limits)
      return write(request, reply, key, { op: 'delete', key })
    })
    scope.put(KEY_ROUTE, { config: { access: 'write', query: ['lock_wait_ms'] } }, async (request, reply) => {
      const key = keyOf(request, limits)
      return write(request, reply, key, { op: 'put', key, value: rawValueOf(request, limits) })
    })
  })

  const decodeBatchGet = decoderOf(KvBatchGetBody, limits)
  const batchGetOptions = {
    schema: { body: KvBatchGetBody },
    config: { access: 'read', query: ['lock_wait_ms'], work: 'reading' },
  } as const
  app.post('/v1/kv/batch_get', batchGetOptions, async (request, reply) => {
    const body = await decodeBatchGet(request)
    const keys = [...new Map(body.keys.map((key) => [keyText(key), key])).values()]
    const wait = lockWaitMs(request.query as RawQuery)
    const signal = hangUp(reply.raw)
    const read = async (ts: Timestamp) => {
      const { pairs } = await coordinator.resolver.resolving(wait, () => store.batchGet({ keys, ts }), signal)
      return { pairs, ts }
    }
    return answer(request, reply, await (body.ts === undefined ? readNow(context, read) : read(body.ts)))
  })
}
