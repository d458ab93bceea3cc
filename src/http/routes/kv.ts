import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from '../../errors/kv-error.js'
import type { LazySignal } from '../../event-loop/lazy-signal.js'
import { MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { GetAnswer } from '../../percolator/api.js'
import { conditionalWriteError } from '../../txn/failed-condition.js'
import type { Op } from '../../txn/op.js'
import { rawBodies, rawValueOf } from '../admission/raw-bodies.js'
import { hangUp } from '../connections/answer-end.js'
import { untilDeadline } from '../connections/deadline.js'
import { answer } from '../wire/answer.js'
import { answerVersion } from '../wire/answer-version.js'
import { decoderOf } from '../wire/decode.js'
import { checksOf, preconditionsOf } from '../wire/etag.js'
import { EXPIRY_PARAMETERS, queryExpiry } from '../wire/expiry.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
import { KEY_ROUTE, requestKey } from '../wire/key-url.js'
import { wantsEvents } from '../wire/media-type.js'
import { lockWaitMs, queryTimestamp, type RawQuery } from '../wire/query.js'
import * as schemas from '../wire/schemas/kv.js'
import type { AppContext } from './context.js'
import { KeyWatching } from './key-watching.js'

export function kvRoutes(app: FastifyInstance, context: AppContext): void {
  const { database, limits } = context
  const watching = new KeyWatching(context)
  const reading = { access: 'read', query: ['ts', 'at', 'lock_wait_ms', 'wait_ms', 'timeout_ms'] } as const
  app.get(KEY_ROUTE, { schema: schemas.readKey, config: reading }, (request, reply) => {
    const query = request.query as RawQuery
    const key = requestKey(request, limits)
    const ts = queryTimestamp(query)
    const wait = lockWaitMs(query)
    const isTimed = query['timeout_ms'] !== undefined
    const isWatching = query['wait_ms'] !== undefined || wantsEvents(request.headers.accept)
    if (isTimed && isWatching) throw invalid('timeout_ms', 'timeout_ms does not go with wait_ms or a stream of events')
    if (wantsEvents(request.headers.accept)) return watching.stream(request, reply, key)
    if (query['wait_ms'] !== undefined) return watching.wait(request, reply, { key, lockWaitMs: wait })
    const send = (found: GetAnswer): FastifyReply => answerVersion(request, reply, key, found.found ? found : undefined)
    const read = (signalOf: () => LazySignal) =>
      database.get({ key, ts }, () => ({ lockWaitMs: wait, signal: signalOf() }))
    const found = isTimed
      ? untilDeadline(request, reply, async (signal) => read(() => signal))
      : read(() => hangUp(reply.raw))
    return found instanceof Promise ? found.then(send) : void send(found)
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
    }
    try {
      const outcome = await untilDeadline(request, reply, (signal, handover) =>
        database.transact({ ...txn, signal, handover }),
      )
      return answerOutcome(request, reply, outcome, { commitTs: outcome.answer.commitTs })
    } catch (error) {
      throw conditionalWriteError(key, error)
    }
  }

  rawBodies(app, context, (scope) => {
    const options = {
      schema: schemas.writeKey,
      config: { access: 'write', query: ['lock_wait_ms', 'timeout_ms'] },
    } as const
    const putting = {
      schema: schemas.writeKey,
      config: { access: 'write', query: ['lock_wait_ms', 'timeout_ms', ...EXPIRY_PARAMETERS] },
    } as const
    scope.delete(KEY_ROUTE, options, async (request, reply) => {
      const key = requestKey(request, limits)
      return write(request, reply, key, { op: 'delete', key })
    })
    scope.put(KEY_ROUTE, putting, async (request, reply) => {
      const key = requestKey(request, limits)
      const expiry = queryExpiry(request.query as RawQuery)
      return write(request, reply, key, { op: 'put', key, value: rawValueOf(request, limits), expiry })
    })
  })

  const decodeBatchGet = decoderOf(schemas.batchGet.body, limits)
  const batchGetOptions = {
    schema: schemas.batchGet,
    config: { access: 'read', query: ['lock_wait_ms', 'timeout_ms'], work: 'reading', onlyReads: true },
  } as const
  app.post('/v1/kv/batch_get', batchGetOptions, async (request, reply) => {
    const { keys, ts } = await decodeBatchGet(request)
    const wait = lockWaitMs(request.query as RawQuery)
    const read = await untilDeadline(request, reply, (signal) =>
      database.batchGet({ keys, ts, lockWaitMs: wait, signal }),
    )
    return answer(request, reply, read)
  })
}
