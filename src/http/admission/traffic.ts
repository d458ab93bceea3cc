import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { KvError } from '../../errors/kv-error.js'
import { type Limits, SMALL_BODY_BYTES } from '../../limits.js'
import type { Store } from '../../store/store.js'
import { whenOver } from '../connections/answer-end.js'
import { bodyOverloadOf, type Load, NO_PRESSURE, overloadOf, pressureOf, type Work } from './admission.js'
import { ArrivingBodies } from './arriving-bodies.js'
import { Backpressure } from './backpressure.js'
import { type BodyDone, BodyReader, type BodyRoom } from './body-reader.js'
import { type Flight, InFlight } from './in-flight.js'
import { LoopDelay } from './loop-delay.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Default: `reading` for GET, `writing` for all else. */
    work?: Work
    /** The handler reads the body as it comes: its bytes are not counted, and it arrives until the answer. */
    bodyIsStream?: boolean
  }
  interface FastifyRequest {
    /** Its share of the counts of admission; undefined: it was not admitted. */
    flight: Flight | undefined
  }
}

/** What `/v1/status` shows. */
export interface TrafficStatus extends Pick<Load, 'requests' | 'answerBytes' | 'loopDelayMs'> {
  /** undefined, and the write queue too: the store does not count them. */
  readonly locks: number | undefined
  readonly queuedBatches: number | undefined
  readonly queuedBytes: number | undefined
  readonly receiving: number
  readonly bodyBytes: number
  readonly streams: number
  readonly shed: number
}

const HOLD_BACK_MS = 250
const LOG_EVERY_MS = 10_000

/** The requests in flight: counts what they hold, and turns away what would be too much before its body is read. */
export class Traffic implements Load, BodyRoom {
  readonly #inFlight = new InFlight()
  readonly #arriving = new ArrivingBodies()
  readonly #store: Store
  readonly #limits: Limits
  readonly #log: Logger
  readonly #loopDelay = new LoopDelay()
  readonly #backpressure: Backpressure
  #pressure = NO_PRESSURE
  #streams = 0
  #shed = 0
  #loggedAtMs = Number.NEGATIVE_INFINITY

  constructor(store: Store, limits: Limits, log: Logger) {
    this.#store = store
    this.#limits = limits
    this.#log = log
    this.#backpressure = new Backpressure(store.answers, limits.stalledMsMax)
  }

  get requests(): number {
    return this.#inFlight.requests
  }
  get answerBytes(): number {
    return this.#store.answers.heldBytes
  }
  get locks(): number {
    return this.#store.lockCount ?? 0
  }
  get queuedBatches(): number {
    return this.#store.writeQueue?.batches ?? 0
  }
  get queuedBytes(): number {
    return this.#store.writeQueue?.bytes ?? 0
  }
  get loopDelayMs(): number {
    return this.#loopDelay.ms
  }

  get status(): TrafficStatus {
    const { requests, receiving, bodyBytes } = this.#inFlight
    const { lockCount: locks, writeQueue } = this.#store
    return {
      requests,
      receiving,
      bodyBytes,
      answerBytes: this.answerBytes,
      locks,
      queuedBatches: writeQueue?.batches,
      queuedBytes: writeQueue?.bytes,
      loopDelayMs: Math.round(this.loopDelayMs),
      streams: this.#streams,
      shed: this.#shed,
    }
  }

  /** On an app without routes: those that come get their hooks. */
  watch(app: FastifyInstance): void {
    app.decorateRequest('flight')
    app.addHook('onRoute', (route) => {
      const { work = route.method === 'GET' || route.method === 'HEAD' ? 'reading' : 'writing' } = route.config ?? {}
      if (work === 'watching') return
      const admit = (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void): void =>
        done(this.#admit(request, work))
      route.onRequest = [admit, ...[route.onRequest ?? []].flat()]
    })
    app.addHook('onSend', (request, reply, payload, done) => {
      request.flight?.end()
      this.#backpressure.watch(reply, payload)
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

  /** Why even reads are turned away at this moment. */
  get overload(): string | undefined {
    this.#pressure = pressureOf(this, this.#limits, this.#pressure)
    return overloadOf('reading', this, this.#pressure, this.#limits)
  }

  #admit(request: FastifyRequest, work: Work): KvError | undefined {
    if (request.flight !== undefined) return undefined // HEAD, which takes the hooks of its GET too.
    this.#pressure = pressureOf(this, this.#limits, this.#pressure)
    const announced = announcedBytes(request)
    const overload =
      overloadOf(work, this, this.#pressure, this.#limits) ??
      (announced > SMALL_BODY_BYTES ? this.#bodyOverload(request, work, announced) : undefined)
    if (overload !== undefined) {
      holdBack(request.raw)
      return this.#refusal(overload)
    }
    request.flight = this.#inFlight.begin(announced > 0)
    return undefined
  }

  /** Known beforehand: what is here leaves no room for it, even if those that stand still go. */
  #bodyOverload({ routeOptions }: FastifyRequest, work: Work, announced: number): string | undefined {
    const isCounted = announced <= this.#limits.bodyBytesMax && routeOptions.config.bodyIsStream !== true
    const { bodyBytes } = this.#inFlight
    if (!isCounted || bodyOverloadOf(work, announced, bodyBytes, this.#limits) === undefined) return undefined
    return bodyOverloadOf(work, announced, bodyBytes - this.#arriving.stalledBytes, this.#limits)
  }

  /**
   * Reads a body into memory.
   * @param done may be told `payload_too_large`, `overloaded`, or `invalid_argument` where the connection broke.
   */
  readBody(request: FastifyRequest, bytesMax: number, done: BodyDone): void {
    request.flight ??= this.#inFlight.begin(true) // Of a route that is never shed.
    const { work = 'writing' } = request.routeOptions.config
    new BodyReader({ message: request.raw, bytesMax, work, flight: request.flight, room: this, done }).start()
  }

  /** A long body has another piece: where there is no room, the bodies that stand still go first. */
  arrived(body: BodyReader): void {
    this.#arriving.moved(body)
    const isOver = (): boolean => {
      const { bodyBytes } = this.#inFlight
      return bodyOverloadOf(body.work, body.heldBytes, bodyBytes - body.heldBytes, this.#limits) !== undefined
    }
    while (isOver() && this.#arriving.evictStalled(body));
    if (isOver()) body.refuse()
  }

  gone(body: BodyReader): void {
    this.#arriving.remove(body)
  }

  refusal(): Error {
    return this.#refusal('the bodies of the requests in flight are too long together')
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

/** Of its body; infinite where it comes in chunks and says nothing beforehand. */
function announcedBytes({ method, headers }: FastifyRequest): number {
  if (method === 'GET' || method === 'HEAD') return 0 // Theirs are thrown away.
  if (headers['transfer-encoding'] !== undefined) return Number.POSITIVE_INFINITY
  return Number(headers['content-length'] ?? 0)
}

/** Turning away what comes too fast is work too: nothing more is read from the connection for a while. */
function holdBack(request: IncomingMessage): void {
  const { socket } = request
  request.once('end', () => {
    socket.pause()
    setTimeout(() => socket.resume(), HOLD_BACK_MS).unref()
  })
}
