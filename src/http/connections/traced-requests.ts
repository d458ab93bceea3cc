import type { FastifyInstance } from 'fastify'
import type { Stages } from '../../event-loop/stages.js'
import { whenOver } from './answer-end.js'
import { RequestProgress } from './request-progress.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** Code of the problem that answers it. */
    problemCode?: string
  }
}

/** A finished request. It holds no key, value or token. Times are milliseconds by `performance.now()`. */
export interface TracedRequest {
  readonly method: string
  /** The pattern of the route: the URL holds keys. undefined: no route has its path. */
  readonly route: string | undefined
  /** undefined: the client had gone before an answer began. */
  readonly status: number | undefined
  readonly errorCode: string | undefined
  readonly arrivedMs: number
  /** Later than `arrivedMs` when it had to wait for a turn of the event loop. */
  readonly startedMs: number
  /** Milliseconds during which its body arrived. */
  readonly receivedMs: number
  readonly endedMs: number
  readonly stages: Stages | undefined
  /** The header as received: its content is not checked. */
  readonly traceparent: string | undefined
}

export interface RequestTraces {
  /** Must not throw. */
  ended(request: TracedRequest): void
}

export function traceRequests(app: FastifyInstance, traces: RequestTraces | undefined): void {
  if (traces === undefined) return
  app.addHook('onRequest', (request, reply, done) => {
    const { raw, method } = request
    const route = request.is404 ? undefined : request.routeOptions.url
    const { arrivedMs, startedMs, stages } = raw.progress ?? new RequestProgress(raw.arrivedMs, false)
    const { traceparent } = raw.headers
    const { progress } = raw // Deleted from a request that asks to wait.
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
