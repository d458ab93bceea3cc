import type { ServerResponse } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import type { LazySignal } from '../../event-loop/lazy-signal.js'
import type { Handover } from '../../txn/one-shot.js'
import { type RawQuery, timeoutMs } from '../wire/query.js'
import { abortOnHangUp, hangUp, whenOver } from './answer-end.js'

/**
 * Runs the work of a request, and answers when its `timeout_ms` has passed. A commit that has begun by then is waited for. Work
 * that is given up ends at its next step; until then the request counts as in flight.
 * @throws KvError `deadline_exceeded`, `invalid_argument`; the errors of `work`.
 */
export function untilDeadline<T>(
  request: FastifyRequest,
  reply: FastifyReply,
  work: (signal: LazySignal, handover?: Handover) => Promise<T>,
): Promise<T> {
  const afterMs = timeoutMs(request.query as RawQuery)
  if (afterMs === undefined) return work(hangUp(reply.raw))
  const deadline = new Deadline(reply.raw, afterMs)
  const { signal } = deadline
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      if (deadline.isHandedOver) return
      const { flight } = request
      request.flight = undefined // The answer must not end it.
      working.finally(() => flight?.end()).catch(() => {})
      reject(signal.reason)
    }
    const working = work(signal, deadline).finally(() => signal.removeEventListener('abort', giveUp))
    working.then(resolve, reject)
    signal.addEventListener('abort', giveUp, { once: true })
  })
}

/**
 * The signal of a call that must answer itself, because it may have taken a lock. It ends the call's waits when the client hangs
 * up, and when `timeout_ms` has passed.
 * @throws KvError `invalid_argument`
 */
export function waitingSignal(request: FastifyRequest, reply: FastifyReply): LazySignal {
  const afterMs = timeoutMs(request.query as RawQuery)
  return afterMs === undefined ? hangUp(reply.raw) : new Deadline(reply.raw, afterMs).signal
}

/**
 * The signal of a call that continues when its client hangs up: it aborts when `timeout_ms` has passed or the token is gone.
 * undefined without both.
 * @throws KvError `invalid_argument`
 */
export function timeoutSignal(request: FastifyRequest, reply: FastifyReply): AbortSignal | undefined {
  const afterMs = timeoutMs(request.query as RawQuery)
  const { letIn } = request.raw
  if (afterMs === undefined && letIn === undefined) return undefined
  const abort = new AbortController()
  if (afterMs !== undefined) abortAfter(abort, reply.raw, afterMs)
  const unfollow = letIn?.follow((error) => abort.abort(error))
  if (unfollow !== undefined) whenOver(reply.raw, unfollow)
  return abort.signal
}

class Deadline implements Handover {
  readonly signal: AbortSignal
  isHandedOver = false

  constructor(answer: ServerResponse, afterMs: number) {
    const abort = new AbortController()
    this.signal = Object.assign(abort.signal, { stages: answer.req.progress?.stages })
    abortAfter(abort, answer, afterMs)
    abortOnHangUp(abort, answer)
  }

  begin(): void {
    this.signal.throwIfAborted()
    this.isHandedOver = true
  }

  undo(): void {
    this.isHandedOver = false
  }
}

function abortAfter(abort: AbortController, answer: ServerResponse, afterMs: number): void {
  const end = (): void => abort.abort(new KvError('deadline_exceeded', `no answer within ${afterMs} ms`, {}))
  const timer = setTimeout(end, afterMs)
  timer.unref()
  whenOver(answer, () => clearTimeout(timer))
}
