import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { whenOver } from './answer-end.js'

type Begin = (request: IncomingMessage, answer: ServerResponse) => void

interface Asked {
  readonly request: IncomingMessage
  readonly answer: ServerResponse
  readonly begin: Begin
}

/** Internal to Node. */
interface NodeAnswer extends ServerResponse {
  /** The connection ends with this answer: its head says so, or the client has ended its side. */
  _last: boolean
}

/** Fields that Node keeps on the connections of its parser. Internal to Node. */
interface NodeSocket extends Socket {
  /** The answer that is being sent, or the next one. */
  readonly _httpMessage?: ServerResponse | null
  readonly parser?: { readonly incoming?: IncomingMessage | null } | null
  /** Node stops reading until answers have been sent, and resumes by itself. */
  readonly _paused?: boolean
}

/**
 * No further request of a connection begins while this many are unanswered. As many more may wait before the connection is read
 * no more.
 */
const REQUESTS_MAX = 64
/** No further request begins either while unsent answers have this many bytes. */
const ANSWER_BYTES_MAX = 64 * 1024

const pipelines = new WeakMap<Socket, Pipeline>()

/**
 * Runs the requests of a connection as if each had come after the answer to the one before (RFC 9112, section 9.3.2): a request
 * that is not safe waits for those before it, and later ones wait for it. Safe requests run concurrently. A request that is
 * alone on its connection pays for one comparison. Must be called after all listeners for requests are set.
 */
export function pipelineRequests(server: Server): void {
  const listeners = server.listeners('request') as Begin[]
  server.removeAllListeners('request')
  const begin = (request: IncomingMessage, answer: ServerResponse): void => {
    for (const listener of listeners) listener.call(server, request, answer)
  }
  server.on('request', (request, answer) => {
    // Node gives an answer its socket when the answers before it are sent.
    if (answer.socket !== null) begin(request, answer)
    else pipelineOf(request.socket).add({ request, answer, begin })
  })
}

/** Calls `next` when the connection's requests are answered. Further ones do not begin. */
export function afterAnswers(socket: Socket, next: () => void): void {
  pipelineOf(socket).end(next)
}

/**
 * Sends the last answer of a connection, to bytes that are no request, after the answers to the requests before them. If those
 * bytes are the body of a request, this is its answer; if it has been answered already, the connection is only closed.
 */
export function answerLast(socket: Socket, send: () => void): void {
  const { incoming } = (socket as NodeSocket).parser ?? {}
  const pipeline = pipelineOf(socket)
  const isInBody = incoming?.complete === false
  const broken = isInBody ? pipeline.drop(incoming) : undefined
  pipeline.keepOpen()
  pipeline.end(() => {
    if (!socket.writable) return // The connection is closing after an earlier answer.
    if (isInBody && (broken === undefined || broken.writableEnded)) socket.destroySoon()
    else if (broken?.headersSent) socket.destroy()
    else send()
  })
}

export function hasMoreBehind(answer: ServerResponse): boolean {
  return pipelines.get(answer.req.socket)?.hasBehind(answer) ?? false
}

function pipelineOf(socket: Socket): Pipeline {
  let pipeline = pipelines.get(socket)
  if (pipeline === undefined) {
    pipeline = new Pipeline(socket)
    pipelines.set(socket, pipeline)
  }
  return pipeline
}

/** The unanswered requests of a connection. Created when there are two of them for the first time. */
class Pipeline {
  readonly #socket: NodeSocket
  /** In order of arrival. The first `#begun` have begun. */
  readonly #asked: Asked[] = []
  #begun = 0
  /** The only request that has begun is not safe. */
  #isUnsafe = false
  #isHeld = false
  #next: (() => void) | undefined
  #dropped: ServerResponse | undefined

  constructor(socket: NodeSocket) {
    this.#socket = socket
    socket.once('close', () => {
      // Node emits `close` only on the answer that is being sent. Without it the others would keep their locks and counts for
      // ever.
      for (const { answer } of [...this.#asked]) if (answer.socket === null) answer.destroy().emit('close')
    })
  }

  add(asked: Asked): void {
    if (this.#next !== undefined) return
    this.#addFirst()
    this.#push(asked)
    this.#goOn()
    // Deferred: Node resumes reading after each request that it has read, so this must come after the last one that has arrived.
    if (this.#asked.length - this.#begun >= REQUESTS_MAX) process.nextTick(() => this.#hold())
  }

  /** Adds the request that was alone on the connection when it came. */
  #addFirst(): void {
    const { _httpMessage: answer } = this.#socket
    if (!answer || answer === this.#dropped || this.#asked.some((one) => one.answer === answer)) return
    this.#push({ request: answer.req, answer, begin: () => {} })
    this.#goOn()
  }

  #push(asked: Asked): void {
    this.#asked.push(asked)
    whenOver(asked.answer, () => this.#remove(asked))
  }

  /** Removes a request. @returns its answer. */
  drop(request: IncomingMessage): ServerResponse | undefined {
    this.#addFirst()
    const asked = this.#asked.find((one) => one.request === request)
    if (asked !== undefined) this.#forget(asked)
    this.#dropped ??= asked?.answer
    return this.#dropped
  }

  hasBehind(answer: ServerResponse): boolean {
    return this.#asked.length > 1 && this.#asked.at(-1)?.answer !== answer
  }

  end(next: () => void): void {
    this.#addFirst()
    this.#next ??= next
    this.#goOn()
  }

  /** When the client ends its side, Node makes the last answer the last thing on the connection. This lets another one follow. */
  keepOpen(): void {
    this.#addFirst()
    const last = this.#asked.at(-1)?.answer as NodeAnswer | undefined
    if (last === undefined || this.#next !== undefined) return
    let wasLast = false
    this.#socket.prependOnceListener('end', () => {
      wasLast = last._last
    })
    this.#socket.once('end', () => {
      last._last = wasLast
    })
  }

  #remove(asked: Asked): void {
    if (this.#forget(asked)) this.#goOn()
  }

  #forget(asked: Asked): boolean {
    const at = this.#asked.indexOf(asked)
    if (at === -1) return false
    this.#asked.splice(at, 1)
    if (at < this.#begun) {
      this.#begun--
      if (!isSafe(asked)) this.#isUnsafe = false
    }
    return true
  }

  #goOn(): void {
    for (
      let next = this.#asked[this.#begun];
      next !== undefined && this.#mayBegin(next);
      next = this.#asked[this.#begun]
    ) {
      this.#begun++
      this.#isUnsafe = !isSafe(next)
      next.begin(next.request, next.answer)
    }
    if (this.#isHeld && this.#asked.length - this.#begun < REQUESTS_MAX) this.#release()
    if (this.#asked.length === 0 && this.#next !== undefined) {
      const next = this.#next
      this.#next = undefined
      next()
    }
  }

  /** Nothing begins after an answer with `connection: close`, or when the client has gone. */
  #mayBegin(next: Asked): boolean {
    if (this.#begun === 0) return this.#socket.writable
    if (!isSafe(next) || this.#isUnsafe || this.#begun >= REQUESTS_MAX || !this.#socket.writable) return false
    let bytes = 0
    for (let i = 0; i < this.#begun; i++) bytes += this.#asked[i]?.answer.writableLength ?? 0
    return bytes < ANSWER_BYTES_MAX
  }

  #hold(): void {
    if (this.#asked.length - this.#begun < REQUESTS_MAX) return
    this.#isHeld = true
    this.#socket.pause()
  }

  #release(): void {
    this.#isHeld = false
    if (!this.#socket._paused) this.#socket.resume()
  }
}

function isSafe({ request: { method } }: Asked): boolean {
  return method === 'GET' || method === 'HEAD'
}
