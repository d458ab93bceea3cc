import type { FastifyInstance } from 'fastify'
import type { Stages } from '../../event-loop/stages.js'
import type { Logger } from '../../logger.js'

/** At most this many lines in this many milliseconds: clients can make many requests slow at once. */
const LINES_MAX = 20
const LINES_MS = 10_000

export interface SlowRequest {
  /** In the fast lane only requests with a problem have an id. */
  readonly reqId: string | undefined
  readonly method: string
  /** The pattern of the route: the URL holds keys. */
  readonly route: string
  readonly status: number
  /** From its head, or from its body if it has one, to the beginning of its answer. */
  readonly totalMs: number
  readonly queueMs: number
  readonly receiveMs: number
  readonly stages: Pick<Stages, 'latchMs' | 'lockMs' | 'readMs' | 'writeMs'>
}

export class SlowRequests {
  readonly #log: Logger
  #windowEndMs = 0
  #lines = 0
  #omitted = 0
  #closing: NodeJS.Timeout | undefined

  constructor(
    log: Logger,
    readonly slowMs: number,
  ) {
    this.#log = log
  }

  write({ reqId, method, route, status, totalMs, queueMs, receiveMs, stages }: SlowRequest): void {
    const nowMs = performance.now()
    if (nowMs >= this.#windowEndMs) {
      this.writeOmitted()
      this.#windowEndMs = nowMs + LINES_MS
      this.#lines = 0
    }
    if (this.#lines >= LINES_MAX) {
      this.#omitted++
      this.#closing ??= setTimeout(() => this.writeOmitted(), this.#windowEndMs - nowMs).unref()
      return
    }
    this.#lines++
    const { latchMs, lockMs, readMs, writeMs } = stages
    const known = { queueMs, latchMs, lockMs, readMs, writeMs }
    const otherMs = Math.max(0, totalMs - Object.values(known).reduce((sum, ms) => sum + ms))
    const times = { totalMs, receiveMs, ...known, otherMs }
    const rounded = Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, Math.round(ms)]))
    this.#log.warn(
      { reqId, method, route, status, ...rounded },
      `slow request: ${method} ${route} took ${rounded['totalMs']} ms`,
    )
  }

  /** Logs the number of requests that got no line: at the end of their period, and when the server stops. */
  writeOmitted(): void {
    clearTimeout(this.#closing)
    this.#closing = undefined
    if (this.#omitted === 0) return
    const omitted = this.#omitted
    this.#omitted = 0
    this.#log.warn({ omitted }, `${omitted} more slow requests, without lines of their own`)
  }
}

export function watchSlowRequests(app: FastifyInstance, slow: SlowRequests | undefined): void {
  if (slow === undefined) return
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
  app.addHook('onClose', async () => slow.writeOmitted())
}
