import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { isKvError, type KvError } from '../../errors/kv-error.js'
import { RETRY_AFTER_S } from '../../limits.js'
import { CorruptRecord } from '../../percolator/codec/key.js'
import { answerProblem } from './answer.js'
import { problemOf } from './problem.js'

/** A failing storage engine fails every request, so the same message is logged at most this often. */
const STORAGE_LOG_MS = 10_000

export type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void

export function errorHandler(log: Logger): ErrorHandler {
  let logged = { detail: '', atMs: 0 }
  const logStorage = (detail: string, reqId: string): void => {
    const nowMs = performance.now()
    if (detail === logged.detail && nowMs - logged.atMs < STORAGE_LOG_MS) return
    logged = { detail, atMs: nowMs }
    log.error({ reqId }, detail)
  }
  return (error, request, reply) => {
    const { status, body, isServerFault } = problemOf(error, request.id)
    if (isKvError(error, 'storage_unavailable')) logStorage(withoutKey(error), request.id)
    else if (isServerFault && !isUnheard(error, reply)) log.error({ err: error, reqId: request.id }, 'request failed')
    if (isKvError(error, 'overloaded')) reply.header('retry-after', RETRY_AFTER_S)
    if (isKvError(error, 'method_not_allowed')) reply.header('allow', error.fields.allow.join(', '))
    answerProblem(request, reply, status, body)
  }
}

function withoutKey({ message, cause }: KvError): string {
  return cause instanceof CorruptRecord ? `the database is damaged: ${cause.withoutKey}` : message
}

/** fastify reports a stream that it closes because its client hung up as an error, when nothing was sent yet. */
function isUnheard(error: unknown, { raw }: FastifyReply): boolean {
  return raw.destroyed && error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE'
}
