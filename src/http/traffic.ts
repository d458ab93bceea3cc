import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import type { Limits } from '../limits.js'
import { KvError } from '../percolator/errors.js'
import type { Store } from '../store/store.js'
import { bodiesOverloadOf, type Load, NO_PRESSURE, overloadOf, pressureOf, type Work } from './admission.js'
import { whenOver } from './answer-end.js'
import { LoopDelay } from './loop-delay.js'
import { UntakenAnswers } from './untaken-answers.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Default: `reading` for GET, `writing` for all else. */
    work?: Work
    /** The handler reads the body as it comes: it is not counted. */
    bodyIsStream?: boolean
  }
  interface FastifyRequest {
    /** Of its body, while it is in flight; -1: it was not admitted, or is answered. */
    bodyBytesHeld: number
  }
}

/** What `/v1/status` shows. */
export interface TrafficStatus extends Load {
  readonly streams: number
  readonly shed: number
}

const HOLD_BACK_MS = 250
const LOG_EVERY_MS = 10_000

/** The requests in flight: counts what they hold, and turns away what would be too much before its body is read. */
export class Traffic implements Load {
  requests = 0
  bodyBytes = 0
  readonly #store: Store
  readonly #limits: Limits
  readonly #log: Logger
  readonly #loopDelay = new LoopDelay()
  readonly #untaken: UntakenAnswers
  #pressure = NO_PRESSURE
  #streams = 0
  #shed = 0
  #loggedAtMs = Number.NEGATIVE_INFINITY

  constructor(store: Store, limits: Limits, log: Logger) {
    this.#store = store
    this.#limits = limits
    this.#log = log
    this.#untaken = new UntakenAnswers(store.answers, limits.stalledMsMax)
  }

  get answerBytes(): number {
    return this.#store.answers.heldBytes
  }
  get locks(): number {
    return this.#store.lockCount
  }
  get queuedBatches(): number {
    return this.#store.writeQueue.batches
  }
  get queuedBytes(): number {
    return this.#store.writeQueue.bytes
  }
  get loopDelayMs(): number {
    return this.#loopDelay.ms
  }

  get status(): TrafficStatus {
    const { requests, bodyBytes, answerBytes, locks, queuedBatches, queuedBytes } = this
    const loopDelayMs = Math.round(this.loopDelayMs)
    const counts = { requests, bodyBytes, answerBytes, locks, queuedBatches, queuedBytes, loopDelayMs }
    return { ...counts, streams: this.#streams, shed: this.#shed }
  }

  /** On an app without routes: those that come get their hooks. */
  watch(app: FastifyInstance): void {
    app.decorateRequest('bodyBytesHeld', -1)
    app.addHook('onRoute', (route) => {
      const { work = route.method === 'GET' || route.method === 'HEAD' ? 'reading' : 'writing' } = route.config ?? {}
      if (work === 'watching') return
      const admit = (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void): void =>
        done(this.#admit(request, work))
      route.onRequest = [admit, ...[route.onRequest ?? []].flat()]
    })
    app.addHook('onSend', (request, reply, payload, done) => {
      this.#answered(request)
      this.#untaken.watch(reply, payload)
      done(null, payload)
    })
    app.addHook('onClose', async () => this.#loopDelay.stop())
  }

  /** Counts a stream until it is taken, or its client has gone. @throws KvError `overloaded` */
  openStream(reply: FastifyReply): void {
    if (this.#streams >= this.#limits.streamsMax) throw this.#refusal('too many streams are open')
    this.#streams++
    whenOver(reply.raw, () => this.#streams--)
  }

  #admit(request: FastifyRequest, work: Work): KvError | undefined {
    if (request.bodyBytesHeld >= 0) return undefined // HEAD, which takes the hooks of its GET too.
    const announced = Number(request.headers['content-length'] ?? 0)
    const isRefusedAnyway = announced > this.#limits.bodyBytesMax
    const bodyBytes = isRefusedAnyway ? 0 : announced
    this.#pressure = pressureOf(this, this.#limits, this.#pressure)
    const overload = overloadOf(work, bodyBytes, this, this.#pressure, this.#limits)
    if (overload !== undefined) {
      holdBack(request.raw)
      return this.#refusal(overload)
    }
    this.requests++
    this.bodyBytes += bodyBytes
    request.bodyBytesHeld = bodyBytes
    const isChunked = request.headers['transfer-encoding'] !== undefined
    if (isChunked && !request.routeOptions.config.bodyIsStream) this.#countChunks(request, work)
    return undefined
  }

  /** A chunked body says nothing beforehand: each chunk has to be admitted. */
  #countChunks(request: FastifyRequest, work: Work): void {
    const { raw } = request
    const count = (chunk: Buffer): void => {
      if (request.bodyBytesHeld < 0) return // Answered already: what comes is thrown away.
      const overload = bodiesOverloadOf(work, chunk.length, this, this.#limits)
      if (overload === undefined) {
        this.bodyBytes += chunk.length
        request.bodyBytesHeld += chunk.length
        return
      }
      raw.off('data', count)
      raw.emit('error', this.#refusal(overload)) // To whoever reads the body; the connection is left to answer on.
    }
    raw.on('data', count)
    raw.pause() // Until the body is asked for.
  }

  #answered(request: FastifyRequest): void {
    if (request.bodyBytesHeld < 0) return
    this.requests--
    this.bodyBytes -= request.bodyBytesHeld
    request.bodyBytesHeld = -1
  }

  #refusal(why: string): KvError<'overloaded'> {
    this.#shed++
    const nowMs = performance.now()
    if (nowMs - this.#loggedAtMs > LOG_EVERY_MS) {
      this.#loggedAtMs = nowMs
      this.#log.warn({ overload: this.status }, `overloaded: ${why}`)
    }
    return new KvError('overloaded', why, {})
  }
}

/** Turning away what comes too fast is work too: nothing more is read from the connection for a while. */
function holdBack(request: IncomingMessage): void {
  const { socket } = request
  request.once('end', () => {
    socket.pause()
    setTimeout(() => socket.resume(), HOLD_BACK_MS).unref()
  })
}
