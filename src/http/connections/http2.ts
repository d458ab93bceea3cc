import type { Server } from 'node:http'
import {
  constants,
  type IncomingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Socket } from 'node:net'
import { invalid, KvError } from '../../errors/kv-error.js'
import { HTTP2_STREAMS_MAX, type Limits } from '../../limits.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import { problemOf } from '../wire/problem.js'
import { toJson } from '../wire/wire.js'
import { SAFE_HEADERS } from './browser-safety.js'
import { Http2Answer, Http2Request, type SharedConnection } from './http2-messages.js'
import { isStreaming } from './streaming-requests.js'

/** What a client that knows the server to speak HTTP/2 sends first (RFC 9113, section 3.4). */
export const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'

/** Node resets further requests of a connection whose heads and pieces of answers take more than this. */
const SESSION_MEMORY_MIB = 16
/** Streams that a connection keeps when half of all are open. */
const STREAMS_IN_NEED = 10
/** Node's own bound on header lines is lower than the one on their bytes, of which a line has these at least. */
const HEADER_LINE_BYTES_MIN = 33
/** A connection that the server ends is cut off after this time. */
const LINGER_MS = 1000
const TICK_MS_MAX = 1000
const TICKS_PER_TIMEOUT = 4

const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i
const NOT_IN_URL = /[^\x21-\x7e]/

type Bounds = Pick<
  Limits,
  'headerBytesMax' | 'idleMsMax' | 'requestMsMax' | 'stalledMsMax' | 'requestsMax' | 'watchesMax'
>

/** Gives the requests of connections with HTTP/2 to the listeners of node:http's server. */
export class Http2Connections {
  readonly #server: Server
  readonly #limits: Bounds
  readonly #connections = new Set<Http2Connection>()
  readonly #ticking: NodeJS.Timeout
  #streams = 0
  #isClosing = false

  constructor(server: Server, limits: Bounds) {
    this.#server = server
    this.#limits = limits
    const { idleMsMax, requestMsMax, stalledMsMax } = limits
    const shortest = Math.min(idleMsMax, stalledMsMax, requestMsMax || Number.POSITIVE_INFINITY)
    const tickMs = Math.min(TICK_MS_MAX, Math.ceil(shortest / TICKS_PER_TIMEOUT))
    this.#ticking = setInterval(() => {
      for (const connection of this.#connections) connection.tick(limits)
    }, tickMs).unref()
  }

  serve(socket: Socket): void {
    if (this.#isClosing) return void socket.destroy()
    socket.allowHalfOpen = false // A client that has ended its side has gone.
    socket.once('finish', () => socket.destroy())
    const session = performServerHandshake(socket, {
      settings: { maxConcurrentStreams: HTTP2_STREAMS_MAX, maxHeaderListSize: this.#limits.headerBytesMax },
      maxSessionMemory: SESSION_MEMORY_MIB,
      maxHeaderListPairs: Math.ceil(this.#limits.headerBytesMax / HEADER_LINE_BYTES_MIN),
    })
    const connection = new Http2Connection(socket, session)
    this.#connections.add(connection)
    socket.once('close', () => {
      this.#connections.delete(connection)
      this.#stopIfOver()
    })
    session.on('error', ignore) // The streams are told.
    session.on(
      'stream',
      (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, rawHeaders: string[]) => {
        stream.on('error', ignore)
        if (!stream.destroyed) this.#begin(connection, stream, headers, rawHeaders)
      },
    )
  }

  #begin(
    connection: Http2Connection,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
  ): void {
    const { requestsMax, watchesMax } = this.#limits
    // As many as there may be requests in flight and waiting ones together.
    const leftover = requestsMax + watchesMax - this.#streams
    if (leftover <= 0 || (leftover < this.#streams && connection.streams >= STREAMS_IN_NEED))
      return void stream.close(constants.NGHTTP2_REFUSED_STREAM)
    this.#streams++
    stream.once('close', () => this.#streams--)
    const request = new Http2Request(stream, headers, rawHeaders, connection)
    const answer = new Http2Answer(request)
    connection.add(answer)
    const error = headError(headers)
    if (error !== undefined) return void refuse(answer, error)
    if (headers[':authority'] !== undefined) headers.host = headers[':authority']
    // So that routes see that a body of unknown length follows.
    if (!stream.endAfterHeaders && headers['content-length'] === undefined) headers['transfer-encoding'] = 'chunked'
    if (CONTINUE.test(headers.expect ?? ''))
      request.asNodes.askForBody = () => {
        if (!answer.destroyed) answer.asNodes.writeContinue()
      }
    connection.begin(() => {
      if (!stream.destroyed) this.#server.emit('request', request.asNodes, answer.asNodes)
    })
  }

  /** Begins no further requests, and closes each connection when its requests are answered. */
  close(): void {
    this.#isClosing = true
    for (const { session } of this.#connections) session.close()
    this.#stopIfOver()
  }

  #stopIfOver(): void {
    if (this.#isClosing && this.#connections.size === 0) clearInterval(this.#ticking)
  }

  destroy(): void {
    clearInterval(this.#ticking)
    for (const { socket } of this.#connections) socket.destroy()
  }
}

class Http2Connection implements SharedConnection {
  readonly remoteAddress: string | undefined
  readonly remotePort: number | undefined
  readonly encrypted: boolean
  readonly #answers = new Set<Http2Answer>()
  /** When it was last without a stream. */
  #idleMs = performance.now()
  #isPaused = false
  #waiting: (() => void)[] = []

  constructor(
    readonly socket: Socket,
    readonly session: ServerHttp2Session,
  ) {
    this.remoteAddress = socket.remoteAddress
    this.remotePort = socket.remotePort
    this.encrypted = session.encrypted === true
  }

  get streams(): number {
    return this.#answers.size
  }

  add(answer: Http2Answer): void {
    this.#answers.add(answer)
    answer.stream.once('close', () => {
      this.#answers.delete(answer)
      this.#idleMs = performance.now()
    })
  }

  begin(request: () => void): void {
    if (this.#isPaused) this.#waiting.push(request)
    else request()
  }

  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
    for (const request of this.#waiting.splice(0)) this.begin(request)
  }

  tick({ idleMsMax, requestMsMax, stalledMsMax }: Bounds): void {
    const nowMs = performance.now()
    if (this.#answers.size === 0 && nowMs - this.#idleMs > idleMsMax && !this.session.closed) this.#end()
    for (const answer of this.#answers) {
      const { req: request, stream } = answer
      if (answer.destroyed) continue
      const isOver = answer.writableEnded
      const isLate = requestMsMax > 0 && nowMs - request.begunMs > requestMsMax && (isOver || !isStreaming(request))
      const isAnswering = answer.asNodes.headersSent && !isOver
      if (answer.isStalled(nowMs - stalledMsMax)) answer.destroy()
      else if (isLate && !isAnswering && stream.state.remoteClose !== 1) refuseLate(answer)
    }
  }

  #end(): void {
    this.session.close()
    setTimeout(() => this.socket.destroy(), LINGER_MS).unref()
  }
}

/** The error of a head that node:http's parser would refuse, or that names no host clearly. */
function headError(headers: IncomingHttpHeaders): KvError | undefined {
  const { ':method': method, ':path': url, ':authority': authority, host } = headers
  if (method === 'CONNECT') return new KvError('not_found', `there is no CONNECT ${authority}`, {})
  if (NOT_IN_URL.test(url ?? '')) return invalid('headers', 'the URL has characters that must be percent-encoded')
  if (authority !== undefined && host !== undefined && authority !== host)
    return invalid('headers', 'the Host header and :authority differ')
  return undefined
}

function refuse(answer: Http2Answer, error: KvError): void {
  const { status, body } = problemOf(error, '')
  answer.writeHead(status, { ...SAFE_HEADERS, 'content-type': CONTENT_TYPE.problem }).end(`${toJson(body)}\n`)
}

/** Answers a request that takes too long to arrive, unless it has an answer. */
function refuseLate(answer: Http2Answer): void {
  if (!answer.asNodes.headersSent) answer.stream.respond({ ...SAFE_HEADERS, ':status': 408 }, { endStream: true })
  answer.stream.close(constants.NGHTTP2_NO_ERROR)
}

function ignore(): void {}
