import type { FastifyInstance } from 'fastify'
import type { Stages } from '../../event-loop/stages.js'
import { whenOver } from './answer-end.js'
import { RequestProgress } from './request-progress.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** Of the problem that is its answer. */
    problemCode?: string
  }
}

/** A request that has ended. It holds no key, value or token. Times are milliseconds by `performance.now()`. */
export interface TracedRequest {
  readonly method: string
  /** Its pattern: the URL holds keys. undefined: no route has its path. */
  readonly route: string | undefined
  /** undefined: its client had gone before an answer began. */
  readonly status: number | undefined
  readonly errorCode: string | undefined
  readonly arrivedMs: number
  /** Later than `arrivedMs` when it had to wait for a turn of the event loop. */
  readonly startedMs: number
  /** For how long its body has arrived. */
  readonly receivedMs: number
  readonly endedMs: number
  readonly stages: Stages | undefined
  /** The header as it came: anything may stand in it. */
  readonly traceparent: string | undefined
}

/** Where ended requests become spans. */
export interface RequestTraces {
  /** Must not throw. */
  ended(request: TracedRequest): void
}

/** For the requests of fastify. A stream ends when its last byte is sent or its client hangs up. */
export function traceRequests(app: FastifyInstance, traces: RequestTraces | undefined): void {
  if (traces === undefined) return
  app.addHook('onRequest', (request, reply, done) => {
    const { raw, method } = request
    const route = request.is404 ? undefined : request.routeOptions.url
    const { arrivedMs, startedMs, stages } = raw.progress ?? new RequestProgress(raw.arrivedMs, false)
    const { traceparent } = raw.headers
    const { progress } = raw // A request that asks to wait loses it.
    whenOver(reply.raw, () =>
      traces.ended({
        method,
        route,
        status: reply.raw.headersSent ? reply.raw.statusCode : undefined,
        errorCode: raw.problemCode,
        arrivedMs,
        startedMs,
        receivedMs: progress?.receivedMs ?? 0,
        endedMs: performance.now(),
        stages,
        traceparent: oneOf(traceparent),
      }),
    )
    done()
  })
}

/** node:http joins repeated headers of this name, to text that is no `traceparent` any more. */
function oneOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? header : undefined
}
