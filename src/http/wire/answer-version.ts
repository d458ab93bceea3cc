import type { FastifyReply, FastifyRequest } from 'fastify'
import { asBuffer } from '../../bytes/key-text.js'
import type { MergedVersion } from '../../coordinator/transaction.js'
import { KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import type { Timestamp } from '../../timestamp.js'
import { preconditionFailed } from '../../txn/failed-condition.js'
import { etagOf, preconditionsOf, readCondition } from './etag.js'

/** Clients may cache an answer with an ETag, and must revalidate it before each use. */
export const CACHE_VERSION = 'private, no-cache'

/**
 * Answers a read of one key with the raw value and its ETag, or with 304 or 412 by the request's conditions. A transaction's own
 * write has no ETag, since it has no commit_ts yet.
 * @throws KvError `not_found`, `precondition_failed`, `invalid_argument` (a malformed condition).
 */
export function answerVersion(
  request: FastifyRequest,
  reply: FastifyReply,
  key: Uint8Array,
  found: MergedVersion | undefined,
): FastifyReply {
  const preconditions = preconditionsOf(request.headers)
  if (found === undefined && preconditions.ifMatch !== undefined) throw preconditionFailed(key, 0)
  if (found === undefined) throw noSuchKey(key)
  const { value, commitTs, expireTs } = found
  const status = readCondition(preconditions, commitTs ?? 0)
  if (status === 412) throw preconditionFailed(key, commitTs ?? 0, true)
  if (commitTs !== undefined) reply.header('etag', etagOf(commitTs)).header('cache-control', CACHE_VERSION)
  if (expireTs !== undefined) reply.header('expire-ts', String(expireTs))
  if (status === 304) return reply.status(304).send()
  return reply.header('content-type', 'application/octet-stream').send(asBuffer(value))
}

/** @param commitTs of the deletion, for a request that waited for it; 0: unknown. */
export function noSuchKey(key: Uint8Array, commitTs?: Timestamp): KvError<'not_found'> {
  const deleted = commitTs === undefined ? {} : { commitTs }
  return new KvError('not_found', `there is no key ${printKey(key)}`, { key, ...deleted })
}
