import type { FastifyInstance } from 'fastify'
import { Stages } from '../../event-loop/stages.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** Milliseconds by `performance.now()`. Set when the request had to wait before it was started. */
    arrivedMs?: number
    /** undefined when neither slow requests are logged nor traces sent; in the log also for requests that asked to wait. */
    progress?: RequestProgress | undefined
  }
}

/** The times of one request, by `performance.now()`. */
export class RequestProgress {
  readonly startedMs = performance.now()
  readonly arrivedMs: number
  /** Milliseconds during which its body arrived. */
  receivedMs = 0
  readonly stages: Stages

  /** @param arrivedMs default: now. */
  constructor(arrivedMs: number | undefined, isTraced: boolean) {
    this.arrivedMs = arrivedMs ?? this.startedMs
    this.stages = new Stages(isTraced)
  }

  received(): void {
    this.receivedMs = performance.now() - this.startedMs
  }
}

export function followRequests(app: FastifyInstance, isTraced: boolean): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const { raw, routeOptions } = request
    // The body of a restore arrives for as long as the work takes.
    if (routeOptions.config?.bodyIsStream !== true) raw.progress = new RequestProgress(raw.arrivedMs, isTraced)
    done()
  })
}
