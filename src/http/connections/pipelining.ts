import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { whenOver } from './answer-end.js'

/** No request of a connection begins while so many wait for their answers to be sent: as in the fast lane. */
const ANSWERS_MAX = 64
/** Nor while the answers that wait to be sent have this many bytes. */
const ANSWER_BYTES_MAX = 64 * 1024

type Request = [request: IncomingMessage, answer: ServerResponse]

/**
 * Begins the requests of a connection only while its client takes the answers. node:http begins all that arrive together, which are a
 * thousand and more in 64 KiB. Call this when all listeners for requests are there.
 */
export function boundPipelines(server: Server): void {
  const listeners = server.listeners('request') as ((...request: Request) => void)[]
  server.removeAllListeners('request')
  const begin = (...request: Request): void => {
    for (const listener of listeners) listener.apply(server, request)
  }
  const pipelines = new WeakMap<Socket, Pipeline>()
  server.on('request', (request, answer) => {
    const { socket } = request
    let pipeline = pipelines.get(socket)
    if (pipeline === undefined) {
      pipeline = new Pipeline(socket, begin)
      pipelines.set(socket, pipeline)
    }
    pipeline.arrived(request, answer)
  })
}

/** The requests of one connection. */
class Pipeline {
  readonly #socket: Socket
  readonly #begin: (...request: Request) => void
  /** Answers of requests that have begun, until they are sent. */
  readonly #open = new Set<ServerResponse>()
  #waiting: Request[] = []

  constructor(socket: Socket, begin: (...request: Request) => void) {
    this.#socket = socket
    this.#begin = begin
  }

  arrived(...request: Request): void {
    if (this.#waiting.length === 0 && this.#mayBegin) this.#start(request)
    else if (this.#waiting.push(request) === 1) this.#stopReading()
  }

  get #mayBegin(): boolean {
    if (this.#open.size === 0) return true
    if (this.#open.size >= ANSWERS_MAX) return false
    let bytes = 0
    for (const { writableLength } of this.#open) bytes += writableLength
    return bytes < ANSWER_BYTES_MAX
  }

  #start(request: Request): void {
    const [, answer] = request
    this.#open.add(answer)
    whenOver(answer, () => {
      this.#open.delete(answer)
      this.#goOn()
    })
    this.#begin(...request)
  }

  #goOn(): void {
    if (this.#waiting.length === 0) return
    if (this.#socket.destroyed) {
      this.#waiting = []
      return
    }
    while (this.#mayBegin) {
      const next = this.#waiting.shift()
      if (next === undefined) break
      if (!next[0].destroyed) this.#start(next)
    }
    if (this.#waiting.length === 0) this.#readOn()
  }

  /** node:http resumes the socket whenever it has sent an answer. The bodies of requests that have begun have arrived. */
  #stopReading(): void {
    this.#socket.pause()
    this.#socket.resume = () => this.#socket
  }

  #readOn(): void {
    Reflect.deleteProperty(this.#socket, 'resume')
    this.#socket.resume()
  }
}
