import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { resolvingLocks } from '../../client/lock-resolver.js'
import { type Op, runOneShot } from '../../client/one-shot.js'
import { MAX_RETRIES_DEFAULT } from '../../limits.js'
import { isKvError, KvError, printKey } from '../../percolator/errors.js'
import { asBuffer, keyText } from '../../percolator/key-text.js'
import type { Timestamp } from '../../percolator/timestamp.js'
import { answer } from '../answer.js'
import { requireKey, requireValue } from '../bytes.js'
import type { AppContext } from '../context.js'
import { decoderOf } from '../decode.js'
import { checksOf, etagOf, preconditionsOf, readCondition } from '../etag.js'
import { answerOutcome, idempotencyOf } from '../idempotency-key.js'
import { KEY_ROUTE, rawKeyOf } from '../key-url.js'
import { lockWaitMs, queryTimestamp, type RawQuery } from '../query.js'
import { BatchGetBody } from '../schemas.js'

/** `/v1/kv/{key}` and `/v1/kv/batch_get`: one key or some, each call a transaction of its own. */
export function kvRoutes(app: FastifyInstance, { store, limits }: AppContext): void {
  function keyOf(request: FastifyRequest): Buffer {
    const key = rawKeyOf(request.originalUrl)
    requireKey(key, 'key', limits.keyBytesMax)
    return key
  }

  app.get(KEY_ROUTE, { config: { query: ['ts', 'at', 'lock_wait_ms'] } }, async (request, reply) => {
    const query = request.query as RawQuery
    const key = keyOf(request)
    const ts = queryTimestamp(query)
    const preconditions = preconditionsOf(request.headers)
    const found = await resolvingLocks(store, lockWaitMs(query), () => store.get({ key, ts }))
    if (!found.found && preconditions.ifMatch !== undefined) throw preconditionFailed(key, 0)
    if (!found.found) throw new KvError('not_found', `there is no key ${printKey(key)}`, { key })
    const status = readCondition(preconditions, found.commitTs)
    if (status === 412) throw preconditionFailed(key, found.commitTs)
    reply.header('etag', etagOf(found.commitTs))
    if (status === 304) return reply.status(304).send()
    return reply.header('content-type', 'application/octet-stream').send(asBuffer(found.value))
  })

  async function write(request: FastifyRequest, reply: FastifyReply, key: Buffer, op: Op): Promise<FastifyReply> {
    const checks = checksOf(key, preconditionsOf(request.headers))
    const wait = lockWaitMs(request.query as RawQuery)
    const idempotency = idempotencyOf(request, { checks, op })
    const txn = { checks, ops: [op], maxRetries: MAX_RETRIES_DEFAULT, lockWaitMs: wait, idempotency }
    try {
      const outcome = await runOneShot(store, txn)
      return answerOutcome(request, reply, outcome, { commitTs: outcome.answer.commitTs })
    } catch (error) {
      if (isKvError(error, 'precondition_failed')) throw preconditionFailed(key, error.fields.commitTs)
      throw error
    }
  }

  // PUT takes any body as it is, and DELETE ignores one, whatever the content type says, a malformed one too.
  app.register(async (scope) => {
    scope.addHook('onRequest', async (request) => {
      request.headers['content-type'] = 'application/octet-stream'
    })
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: limits.valueBytesMax }, (_request, body, done) =>
      done(null, body),
    )
    scope.delete(KEY_ROUTE, { config: { query: ['lock_wait_ms'] } }, async (request, reply) => {
      const key = keyOf(request)
      return write(request, reply, key, { op: 'delete', key })
    })
    scope.put(KEY_ROUTE, { config: { query: ['lock_wait_ms'] } }, async (request, reply) => {
      const key = keyOf(request)
      const value = request.body instanceof Uint8Array ? request.body : Buffer.alloc(0)
      requireValue(value, 'body', limits.valueBytesMax)
      return write(request, reply, key, { op: 'put', key, value })
    })
  })

  const decodeBatchGet = decoderOf(BatchGetBody, limits)
  const batchGetOptions = { schema: { body: BatchGetBody }, config: { query: ['lock_wait_ms'] } }
  app.post('/v1/kv/batch_get', batchGetOptions, async (request, reply) => {
    const body = decodeBatchGet(request.body)
    const keys = [...new Map(body.keys.map((key) => [keyText(key), key])).values()]
    const ts = body.ts ?? (await store.tso(1))
    const wait = lockWaitMs(request.query as RawQuery)
    const { pairs } = await resolvingLocks(store, wait, () => store.batchGet({ keys, ts }))
    return answer(request, reply, { pairs, ts })
  })
}

function preconditionFailed(key: Uint8Array, commitTs: Timestamp): KvError<'precondition_failed'> {
  const now = commitTs === 0 ? 'is absent' : `is at version ${commitTs}`
  return new KvError('precondition_failed', `the condition does not hold: key ${printKey(key)} ${now}`, {
    key,
    commitTs,
  })
}
