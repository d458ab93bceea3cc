import type { IncomingMessage } from 'node:http'
import { type Readable, Transform } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import type { Limits } from '../limits.js'
import { KvError } from '../percolator/errors.js'
import type { Store } from '../store/store.js'
import { type Load, NO_PRESSURE, overloadOf, pressureOf, type Work } from './admission.js'
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
      if (route.config?.bodyIsStream === true || (work === 'reading' && route.method === 'GET')) return
      const count = (request: FastifyRequest, _reply: FastifyReply, payload: Readable, done: CountedBody): void =>
        done(null, request.headers['transfer-encoding'] === undefined ? payload : this.#counted(request, payload, work))
      route.preParsing = [count, ...[route.preParsing ?? []].flat()]
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
    reply.raw.once('close', () => this.#streams--)
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
    return undefined
  }

  /** A chunked body says nothing beforehand: each chunk has to be admitted. */
  #counted(request: FastifyRequest, payload: Readable, work: Work): Readable {
    const counted = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        const overload = overloadOf(work, chunk.length, this, NO_PRESSURE, this.#limits)
        if (overload !== undefined) return done(this.#refusal(overload))
        this.bodyBytes += chunk.length
        request.bodyBytesHeld += chunk.length
        done(null, chunk)
      },
    })
    payload.once('error', (error) => counted.destroy(error))
    return payload.pipe(counted)
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

type CountedBody = (error: null, payload: Readable) => void
