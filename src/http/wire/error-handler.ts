import type { FastifyReply, FastifyRequest } from 'fastify'
import { isKvError, type KvError } from '../../errors/kv-error.js'
import { addTimeLeft } from '../../errors/lock-detail.js'
import type { Logger } from '../../logger.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import { CorruptRecord } from '../../percolator/codec/key.js'
import type { Store } from '../../store/store.js'
import { answerProblem } from './answer.js'
import { type Problem, problemOf } from './problem.js'
import { ofUsersKeys } from './users-keys.js'

/** A failing storage engine fails every request, so the same message is logged at most this often. */
const STORAGE_LOG_MS = 10_000

export type Report = (error: unknown, requestId: string) => Problem
export type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void

/** @param store logs some failures itself, which each request would repeat. */
export function reportTo(log: Logger, meters: HttpMeters, store: Pick<Store, 'now' | 'upkeep'>): Report {
  let logged = { detail: '', atMs: 0 }
  const logStorage = (detail: string, reqId: string): void => {
    const nowMs = performance.now()
    if (detail === logged.detail && nowMs - logged.atMs < STORAGE_LOG_MS) return
    logged = { detail, atMs: nowMs }
    log.error({ reqId }, detail)
  }
  return (thrown, requestId) => {
    const error = ofUsersKeys(thrown)
    addTimeLeft(error, () => store.now())
    const problem = problemOf(error, requestId)
    meters.problem(problem.code)
    if (store.upkeep.isReported(error)) return problem
    if (isKvError(error, 'storage_unavailable')) logStorage(withoutKey(error), requestId)
    else if (problem.isServerFault) log.error({ err: error, reqId: requestId }, 'request failed')
    return problem
  }
}

export function errorHandler(report: Report): ErrorHandler {
  return (error, request, reply) => {
    const problem = isUnheard(error, reply) ? problemOf(error, request.id) : report(error, request.id)
    request.raw.problemCode = problem.code
    answerProblem(request, reply, problem)
  }
}

function withoutKey({ message, cause }: KvError): string {
  return cause instanceof CorruptRecord ? `the database is damaged: ${cause.withoutKey}` : message
}

/** fastify reports a stream that it closes because its client hung up as an error, when nothing was sent yet. */
function isUnheard(error: unknown, { raw }: FastifyReply): boolean {
  return raw.destroyed && error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE'
}
