import type { EventEmitter } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  constants,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Readable } from 'node:stream'

/** What requests see of a connection in place of its socket, which belongs to all its streams. */
export interface SharedConnection {
  readonly remoteAddress: string | undefined
  readonly remotePort: number | undefined
  readonly encrypted: boolean
  /** Later requests begin only when it is resumed. */
  pause(): void
  resume(): void
}

type Then = (error?: Error | null) => void

// As interfaces, because Node's types declare as fields what are accessors.
interface NodeRequest extends Readable {
  readonly stream: ServerHttp2Stream
}
interface NodeAnswer extends EventEmitter {
  readonly stream: ServerHttp2Stream
  readonly req: Http2Request
  readonly writableEnded: boolean
  readonly writableLength: number
  writeHead(status: number, headers: Readonly<Record<string, string | number>>): this
  write(chunk: string | Uint8Array, encoding?: BufferEncoding | null | Then, then?: Then): boolean
  end(chunk?: string | Uint8Array | null, encoding?: BufferEncoding | null, then?: Then): this
}
const NodeRequest = Http2ServerRequest as unknown as new (
  ...args: [ServerHttp2Stream, IncomingHttpHeaders, object, readonly string[]]
) => NodeRequest
const NodeAnswer = Http2ServerResponse as unknown as new (stream: ServerHttp2Stream) => NodeAnswer

/** Answers are sent in pieces of this size, because a piece shows only as a whole whether the client takes it. */
const PIECE_BYTES = 16 * 1024

/** A request of HTTP/2 that behaves like one of node:http. */
export class Http2Request extends NodeRequest {
  readonly begunMs = performance.now()

  constructor(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
    readonly socket: SharedConnection,
  ) {
    super(stream, headers, { emitClose: false }, rawHeaders) // Node emits `close` itself.
    // Node would end the body as if it were complete.
    stream.once('aborted', () => this.destroy())
  }

  override _destroy(error: Error | null, done: Then): void {
    this.stream.close(constants.NGHTTP2_CANCEL)
    done(this.listenerCount('error') > 0 ? (error ?? new Error('aborted')) : null)
  }

  get asNodes(): IncomingMessage {
    return this as unknown as IncomingMessage
  }
}

/** An answer to a request of HTTP/2 that behaves like one of node:http. */
export class Http2Answer extends NodeAnswer {
  readonly socket: SharedConnection
  #isEnding = false
  /** When the client last took something, or had nothing to take. */
  #movedMs = performance.now()

  constructor(request: Http2Request) {
    super(request.stream)
    this.socket = request.socket
    this.on('timeout', () => {
      if (this.writableLength > 0) this.destroy()
    })
  }

  get destroyed(): boolean {
    return this.stream.destroyed || this.stream.closed
  }
  override get writableEnded(): boolean {
    return this.#isEnding || super.writableEnded
  }

  override write(chunk: string | Uint8Array, encoding?: BufferEncoding | null | Then, then?: Then): boolean {
    const taken = typeof encoding === 'function' ? encoding : then
    if (this.writableLength === 0) this.#movedMs = performance.now()
    return super.write(chunk, typeof encoding === 'function' ? null : encoding, (error) => {
      this.#movedMs = performance.now()
      taken?.(error)
    })
  }

  override end(chunk?: string | Uint8Array | null, encoding?: BufferEncoding | null, then?: Then): this {
    if (chunk === null || chunk === undefined || chunk.length <= PIECE_BYTES) return super.end(chunk, encoding, then)
    this.#isEnding = true
    this.#sendFrom(typeof chunk === 'string' ? Buffer.from(chunk) : chunk, 0, then)
    return this
  }

  #sendFrom(bytes: Uint8Array, at: number, then: Then | undefined): void {
    const end = at + PIECE_BYTES
    if (end >= bytes.length) super.end(bytes.subarray(at), null, then)
    else
      this.write(bytes.subarray(at, end), (error) => {
        if (!error) this.#sendFrom(bytes, end, then)
      })
  }

  /** The client learns that the answer is not complete. */
  destroy(): void {
    this.stream.close(constants.NGHTTP2_INTERNAL_ERROR)
  }

  /** Whether the client has taken nothing for some time, although there was something. */
  isStalled(sinceMs: number): boolean {
    return this.writableLength > 0 && this.#movedMs < sinceMs
  }

  get asNodes(): ServerResponse {
    return this as unknown as ServerResponse
  }
}
