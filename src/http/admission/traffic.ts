import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { halfTaken, Shares } from '../../access/shares.js'
import { KvError } from '../../errors/kv-error.js'
import { type Limits, SMALL_BODY_BYTES } from '../../limits.js'
import type { Logger } from '../../logger.js'
import type { Histogram } from '../../meters/histogram.js'
import type { Store } from '../../store/store.js'
import { whenOver } from '../connections/answer-end.js'
import { callerOf } from './access.js'
import { bodyOverloadOf, ENDING_SHARE, type Load, NO_PRESSURE, overloadOf, pressureOf, type Work } from './admission.js'
import { ArrivingBodies } from './arriving-bodies.js'
import { Backpressure, mayRefuse } from './backpressure.js'
import { type BodyDone, BodyReader, type BodyRoom } from './body-reader.js'
import { type Flight, InFlight } from './in-flight.js'
import { LoopDelay } from './loop-delay.js'
import { OpenWatches, type Watch, type WatchOptions } from './open-watches.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Default: `reading` for GET and HEAD, `writing` for other methods. */
    work?: Work
    /** The handler reads the body as a stream: its bytes are not counted, and it may arrive until the answer is sent. */
    bodyIsStream?: boolean
  }
  interface FastifyRequest {
    /** The share of this request in the counts of admission; undefined: it was not admitted. */
    flight: Flight | undefined
  }
}

export interface TrafficStatus extends Pick<Load, 'requests' | 'answerBytes' | 'loopDelayMs'> {
  /** `locks` and the queue are undefined when the store does not count them. */
  readonly locks: number | undefined
  readonly queuedBatches: number
  readonly queuedBytes: number
  readonly receiving: number
  readonly bodyBytes: number
  readonly streams: number
  readonly watches: number
  readonly shed: number
}

/** After a request was shed, its connection is not read for this time, because refusing requests is work too. */
export const HOLD_BACK_MS = 250
const LOG_EVERY_MS = 10_000

/** Counts the resources of the requests in flight, and sheds requests before their bodies are read. */
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
  readonly #streamsOf = new Shares()
  readonly #watches = new OpenWatches()
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
    return this.#store.locks?.count ?? 0
  }
  get queuedBatches(): number {
    return this.#store.figures.writeQueue.batches
  }
  get queuedBytes(): number {
    return this.#store.figures.writeQueue.bytes
  }
  get loopDelayMs(): number {
    return this.#loopDelay.ms
  }

  get loopDelays(): Histogram {
    return this.#loopDelay.delays
  }

  get status(): TrafficStatus {
    const { requests, receiving, bodyBytes } = this.#inFlight
    return {
      requests,
      receiving,
      bodyBytes,
      answerBytes: this.answerBytes,
      locks: this.#store.locks?.count,
      queuedBatches: this.queuedBatches,
      queuedBytes: this.queuedBytes,
      loopDelayMs: Math.round(this.loopDelayMs),
      streams: this.#streams,
      watches: this.#watches.size,
      shed: this.#shed,
    }
  }

  /** Must be called before the first route: only later routes get the hooks. */
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
      const refusal = mayRefuse(request) && reply.statusCode < 400 ? refusalOf(request) : undefined
      if (refusal !== undefined) {
        if (payload instanceof Readable) payload.destroy()
        reply.removeHeader('etag')
        done(refusal)
      } else if (this.#backpressure.watch(request, reply, payload)) done(null, payload)
      else {
        reply.removeHeader('etag')
        done(this.#refusal(halfTaken('answers in memory')))
      }
    })
    app.addHook('preClose', async () => this.#watches.close())
    app.addHook('onClose', async () => this.#loopDelay.stop())
  }

  /** Counts a stream until it has been sent or its client has hung up. @throws KvError `overloaded` */
  openStream(reply: FastifyReply): void {
    const { streamsMax } = this.#limits
    const caller = callerOf(reply.request)
    if (this.#streams >= streamsMax) throw this.#refusal('too many streams are open')
    if (!this.#streamsOf.hasRoom(caller, streamsMax)) throw this.#refusal(halfTaken('streams'))
    this.#streams++
    this.#streamsOf.add(caller, 1)
    whenOver(reply.raw, () => {
      this.#streams--
      this.#streamsOf.add(caller, -1)
    })
  }

  /**
   * Lets a request wait for an event. It holds no work, so it no longer counts as in flight.
   * @throws KvError `overloaded`
   */
  openWatch(request: FastifyRequest, reply: FastifyReply, options: WatchOptions = {}): Watch {
    const { watchesMax } = this.#limits
    if (this.#watches.size >= watchesMax) throw this.#refusal('too many requests wait for changes')
    if (!this.#watches.shares.hasRoom(callerOf(request), watchesMax)) throw this.#refusal(halfTaken('waiting requests'))
    request.flight?.end()
    request.raw.progress = undefined
    return this.#watches.open(request, reply, options)
  }

  /** The reason why even reads are shed now; undefined when they are not. */
  get overload(): string | undefined {
    return this.#overloadOf('reading', undefined)
  }

  #overloadOf(work: Work, caller: string | undefined): string | undefined {
    this.#pressure = pressureOf(this, this.#limits, this.#pressure)
    return overloadOf(work, this, this.#pressure, this.#limits) ?? this.#shareOverloadOf(work, caller)
  }

  /** The reason to shed a request whose caller uses more than its share. */
  #shareOverloadOf(work: Work, caller: string | undefined): string | undefined {
    if (caller === undefined || work === 'watching') return undefined
    const { requestsMax } = this.#limits
    const isEnding = work === 'ending'
    if (!this.#inFlight.shares.hasRoom(caller, isEnding ? ENDING_SHARE * requestsMax : requestsMax))
      return halfTaken('requests in flight')
    return isEnding || this.#store.answers.hasRoomFor(caller) ? undefined : halfTaken('answers in memory')
  }

  #admit(request: FastifyRequest, work: Work): KvError | undefined {
    if (request.flight !== undefined) return undefined // The hook runs twice for HEAD: its own, and that of its GET.
    const announced = announcedBytes(request)
    const caller = callerOf(request)
    const overload =
      this.#overloadOf(work, caller) ??
      (announced > SMALL_BODY_BYTES ? this.#bodyOverload(request, work, announced) : undefined)
    if (overload !== undefined) {
      holdBack(request.raw)
      return this.#refusal(overload)
    }
    request.flight = this.#inFlight.begin(announced > 0, caller)
    return undefined
  }

  /**
   * Admits a request that has arrived completely, with at most SMALL_BODY_BYTES.
   * @throws KvError `overloaded`
   */
  admitWhole(work: Work, bodyBytes: number, caller: string | undefined): Flight {
    const overload = this.#overloadOf(work, caller)
    if (overload !== undefined) throw this.#refusal(overload)
    const flight = this.#inFlight.begin(false, caller)
    flight.hold(bodyBytes)
    return flight
  }

  /** The reason to refuse the announced body: there would be no room even if all stalled bodies were refused. */
  #bodyOverload({ routeOptions }: FastifyRequest, work: Work, announced: number): string | undefined {
    const isCounted = announced <= this.#limits.bodyBytesMax && routeOptions.config.bodyIsStream !== true
    const { bodyBytes } = this.#inFlight
    if (!isCounted || bodyOverloadOf(work, announced, bodyBytes, this.#limits) === undefined) return undefined
    return bodyOverloadOf(work, announced, bodyBytes - this.#arriving.stalledBytes, this.#limits)
  }

  /**
   * Reads a body into memory.
   * @param done gets `payload_too_large`, `overloaded`, or `invalid_argument` when the connection broke.
   */
  readBody(request: FastifyRequest, bytesMax: number, done: BodyDone): void {
    request.flight ??= this.#inFlight.begin(true, callerOf(request)) // Routes that are never shed have no flight yet.
    const { work = 'writing' } = request.routeOptions.config
    const { progress } = request.raw
    const received: BodyDone = (...outcome) => {
      progress?.received()
      try {
        request.raw.letIn?.require() // The token may have changed while the body arrived.
      } catch (error) {
        return done(error as KvError)
      }
      done(...outcome)
    }
    new BodyReader({ message: request.raw, bytesMax, work, flight: request.flight, room: this, done: received }).start()
  }

  /** Makes room for another piece of a long body: refuses stalled bodies first, then this one. */
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
    return this.#refusal('the bodies of the requests in flight take too much memory')
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

/** Bytes of the body by the headers; infinite for a chunked body. */
function announcedBytes({ method, headers }: FastifyRequest): number {
  if (method === 'GET' || method === 'HEAD') return 0 // Their bodies are discarded.
  if (headers['transfer-encoding'] !== undefined) return Number.POSITIVE_INFINITY
  return Number(headers['content-length'] ?? 0)
}

/** The error for a caller that has lost its token meanwhile: nothing that was read may reach it. */
function refusalOf({ raw }: FastifyRequest): Error | undefined {
  try {
    raw.letIn?.require()
    return undefined
  } catch (error) {
    return error as Error
  }
}

function holdBack(request: IncomingMessage): void {
  const { socket } = request
  const hold = (): void => {
    socket.pause()
    setTimeout(() => socket.resume(), HOLD_BACK_MS).unref()
  }
  // Of HTTP/2 nobody reads the rest of a refused request, and other streams are held back, not its body.
  if (request.httpVersionMajor === 2) hold()
  else request.once('end', hold)
}
