import type { FastifyInstance } from 'fastify'
import { Stages } from '../../event-loop/stages.js'
import type { Logger } from '../../logger.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** Milliseconds by `performance.now()`. Set when the request had to wait before it was started. */
    arrivedMs?: number
    /** undefined when slow requests are not logged, and for requests that wait because they asked to. */
    progress?: RequestProgress | undefined
  }
}

/** At most so many lines in so many milliseconds: clients can make many requests slow at once. */
const LINES_MAX = 20
const LINES_MS = 10_000

/** The times of one request, by `performance.now()`. */
export class RequestProgress {
  readonly startedMs = performance.now()
  readonly arrivedMs: number
  /** For how long its body has arrived. */
  receivedMs = 0
  readonly stages = new Stages()

  /** @param arrivedMs default: now. */
  constructor(arrivedMs: number | undefined) {
    this.arrivedMs = arrivedMs ?? this.startedMs
  }

  received(): void {
    this.receivedMs = performance.now() - this.startedMs
  }
}

export interface SlowRequest {
  /** Of the fast lane only requests with a problem have one. */
  readonly reqId: string | undefined
  readonly method: string
  /** Its pattern: the URL holds keys. */
  readonly route: string
  readonly status: number
  /** From its head, or from its body if it has one, to the beginning of its answer. */
  readonly totalMs: number
  readonly queueMs: number
  readonly receiveMs: number
  readonly stages: Pick<Stages, 'latchMs' | 'lockMs' | 'readMs' | 'writeMs'>
}

/** Logs requests that take long, with the places where their time went. */
export class SlowRequests {
  readonly #log: Logger
  #windowEndMs = 0
  #lines = 0
  #omitted = 0

  constructor(
    log: Logger,
    readonly slowMs: number,
  ) {
    this.#log = log
  }

  write({ reqId, method, route, status, totalMs, queueMs, receiveMs, stages }: SlowRequest): void {
    const nowMs = performance.now()
    if (nowMs >= this.#windowEndMs) {
      this.#windowEndMs = nowMs + LINES_MS
      this.#lines = 0
    }
    if (this.#lines >= LINES_MAX) {
      this.#omitted++
      return
    }
    this.#lines++
    const { latchMs, lockMs, readMs, writeMs } = stages
    const known = { queueMs, latchMs, lockMs, readMs, writeMs }
    const otherMs = Math.max(0, totalMs - Object.values(known).reduce((sum, ms) => sum + ms))
    const times = { totalMs, receiveMs, ...known, otherMs }
    const rounded = Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, Math.round(ms)]))
    const omitted = this.#omitted === 0 ? {} : { omitted: this.#omitted }
    this.#omitted = 0
    this.#log.warn(
      { reqId, method, route, status, ...rounded, ...omitted },
      `slow request: ${method} ${route} took ${rounded['totalMs']} ms`,
    )
  }
}

/** For the requests of fastify. Those of the fast lane are measured there. */
export function watchSlowRequests(app: FastifyInstance, slow: SlowRequests | undefined): void {
  if (slow === undefined) return
  app.addHook('onRequest', (request, _reply, done) => {
    const { raw, routeOptions } = request
    // The body of a restore arrives for as long as the work takes.
    if (routeOptions.config?.bodyIsStream !== true) raw.progress = new RequestProgress(raw.arrivedMs)
    done()
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    const { progress } = request.raw
    if (progress !== undefined) {
      const { arrivedMs, startedMs, receivedMs: receiveMs, stages } = progress
      const totalMs = performance.now() - arrivedMs - receiveMs
      if (totalMs >= slow.slowMs) {
        const { id: reqId, method, routeOptions } = request
        const { url: route = 'none' } = routeOptions
        const queueMs = startedMs - arrivedMs
        slow.write({ reqId, method, route, status: reply.statusCode, totalMs, queueMs, receiveMs, stages })
      }
    }
    done(null, payload)
  })
}
