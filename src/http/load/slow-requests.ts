import type { FastifyInstance } from 'fastify'
import type { KeyRange } from '../../bytes/key-range.js'
import type { Stages } from '../../event-loop/stages.js'
import type { Logger } from '../../logger.js'
import { type TouchedKeys, touchedByRequest } from './touched-keys.js'

/** At most this many lines in this many milliseconds: clients can make many requests slow at once. */
const LINES_MAX = 20
const LINES_MS = 10_000
/** Requests that are kept, the newest, with the beginnings of some of their keys. */
const KEPT_MAX = 100
const KEYS_KEPT = 4
const KEY_BYTES_KEPT = 256

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
  /** Not in the log, which holds no keys. */
  readonly touched: TouchedKeys
}

/** Whole milliseconds of a request, by the places where they went. */
type Times = Readonly<Record<(typeof TIMES)[number], number>>
const TIMES = ['totalMs', 'receiveMs', 'queueMs', 'latchMs', 'lockMs', 'readMs', 'writeMs', 'otherMs'] as const

export interface KeptRequest extends Pick<SlowRequest, 'reqId' | 'method' | 'route' | 'status'> {
  readonly beganAtMs: number
  readonly times: Times
  readonly keys: readonly Uint8Array[]
  readonly range: KeyRange | undefined
  /** Whether keys, or ends of keys, are left out. */
  readonly isCut: boolean
}

/** What is slow, and is therefore logged, a few lines at a time, and kept for `GET /v1/admin/load`. */
export class SlowRequests {
  readonly #log: Logger
  readonly #kept: KeptRequest[] = []
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

  /** The newest first. */
  get kept(): readonly KeptRequest[] {
    return this.#kept.toReversed()
  }

  write(request: SlowRequest): void {
    const times = timesOf(request)
    this.#keep(request, times)
    this.#writeLine(request, times)
  }

  #keep({ reqId, method, route, status, touched }: SlowRequest, times: Times): void {
    if (this.#kept.length >= KEPT_MAX) this.#kept.shift()
    const all = [...touched.keys, touched.range?.start, touched.range?.end]
    this.#kept.push({
      ...{ reqId, method, route, status, times },
      beganAtMs: Date.now() - times.totalMs - times.receiveMs,
      keys: touched.keys.slice(0, KEYS_KEPT).map((key) => beginningOf(key)),
      range: touched.range && { start: beginningOf(touched.range.start), end: beginningOf(touched.range.end) },
      isCut: touched.keys.length > KEYS_KEPT || all.some((key) => key !== undefined && key.length > KEY_BYTES_KEPT),
    })
  }

  #writeLine({ reqId, method, route, status }: SlowRequest, times: Times): void {
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
    this.#log.warn(
      { reqId, method, route, status, ...times },
      `slow request: ${method} ${route} took ${times.totalMs} ms`,
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

/** A copy: a view would keep the whole request in memory. */
function beginningOf<K extends Uint8Array | undefined>(key: K): K {
  return key && (new Uint8Array(key.subarray(0, KEY_BYTES_KEPT)) as K)
}

function timesOf({ totalMs, queueMs, receiveMs, stages }: SlowRequest): Times {
  const { latchMs, lockMs, readMs, writeMs } = stages
  const known = { queueMs, latchMs, lockMs, readMs, writeMs }
  const otherMs = Math.max(0, totalMs - Object.values(known).reduce((sum, ms) => sum + ms))
  const times: Times = { totalMs, receiveMs, ...known, otherMs }
  return Object.fromEntries(TIMES.map((name) => [name, Math.round(times[name])])) as Times
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
        const touched = touchedByRequest(request)
        slow.write({ reqId, method, route, status: reply.statusCode, totalMs, queueMs, receiveMs, stages, touched })
      }
    }
    done(null, payload)
  })
  app.addHook('onClose', async () => slow.writeOmitted())
}
