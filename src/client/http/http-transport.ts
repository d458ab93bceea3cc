import { isUncertain } from '../../coordinator/uncertain.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import { errorRow } from '../../errors/registry.js'
import { onAbort } from '../../event-loop/on-abort.js'
import { sleep } from '../../event-loop/sleep.js'
import { TIMER_MS_MAX } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { inDoubt } from '../deadline.js'
import { type Kinds, kind, TEXT, TIME_MS } from '../options.js'
import { ConnectionError } from './connection-error.js'
import { type Fetch, fetchSender } from './fetch-sender.js'
import type { HttpAnswer } from './http-answer.js'
import { MSGPACK } from './http-message.js'
import { errorOf } from './http-problem.js'
import { nodeSender } from './node-sender.js'
import { retryAfterMs } from './retry-after.js'
import { AnswerTooLong, type ReceivedAnswer, type Sender } from './sender.js'
import { ServerError, unexpectedAnswer } from './server-error.js'

export interface TransportOptions {
  /** Sends the requests. Default: node:http in Node, the global `fetch` elsewhere. */
  readonly fetch?: Fetch | undefined
  /** Sent as `Authorization: Bearer`. A function is called before every request, for tokens that change. */
  readonly token?: Token | undefined
  /** Trusted certificates as PEM, for a server with its own CA. Only used where node:https sends the requests. */
  readonly ca?: string | undefined
  /**
   * Sent with every request. A function is called before each request, repetitions included, within the caller's async context:
   * so tracing libraries can add `traceparent`.
   */
  readonly headers?: ExtraHeaders | undefined
  /** Longest time of one request in milliseconds, from sending it to the last byte of its answer. Default 10 000. */
  readonly requestTimeoutMs?: number | undefined
  /** Longest wait for a server that has never answered, in milliseconds. Default 3000. */
  readonly connectTimeoutMs?: number | undefined
  /** Time in milliseconds during which a request is repeated after no answer, or after a temporary error. Default 10 000. */
  readonly retryMs?: number | undefined
  /**
   * Called before a request is sent again, with the reason and the number of times that it was sent. Not called while no server
   * was ever reached.
   */
  readonly onRetry?: ((error: Error, tries: number) => void) | undefined
}

type ExtraHeaders = Readonly<Record<string, string>> | (() => Readonly<Record<string, string>>)
export type Token = string | (() => string | Promise<string>)

const TIMEOUT_MS = kind<number>('a number of milliseconds above 0', (value) => typeof value === 'number' && value > 0)
const isFunction = (value: unknown): boolean => typeof value === 'function'

export const TRANSPORT_KINDS: Kinds<TransportOptions> = {
  fetch: kind('a function', isFunction),
  token: kind('a string, or a function that gives one', (value) => typeof value === 'string' || isFunction(value)),
  ca: TEXT,
  headers: kind(
    'an object of names and values, or a function that gives one',
    (value) => isFunction(value) || (typeof value === 'object' && value !== null && !Array.isArray(value)),
  ),
  requestTimeoutMs: TIMEOUT_MS,
  connectTimeoutMs: TIMEOUT_MS,
  retryMs: TIME_MS,
  onRetry: kind('a function', isFunction),
}

/** Must be safe to repeat, whether or not the first request arrived. */
export interface HttpRequest {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE'
  /** Begins with a slash. */
  readonly path: string
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly body?: Uint8Array | undefined
  /** Time that the server may spend waiting for other transactions, in addition to `requestTimeoutMs`. */
  readonly waitMs?: number | undefined
  readonly signal?: AbortSignal | undefined
  /** A deadline of the request reports that the write may have taken effect. */
  readonly isWrite?: boolean
  /** The request changes nothing, so no error says that it may have taken effect. Default: a GET. */
  readonly isRead?: boolean | undefined
  /** The headers that a success must have, checked before the body is read. Default `message`. */
  readonly expects?: 'message' | 'value' | 'events' | 'text' | undefined
}

export interface HttpStreamRequest extends HttpRequest {
  /** The connection counts as dead when nothing arrives for this long while the caller waits. */
  readonly silentMsMax: number
}

export interface HttpStream {
  /**
   * The body, read no faster than the caller asks. It ends early when the signal of the request aborts. It throws
   * ConnectionError when the connection breaks, or is silent for too long.
   */
  readonly chunks: AsyncGenerator<Uint8Array, void>
  /** Must be called at the end. Ends the request if it is still running. */
  close(): void
}

const REQUEST_TIMEOUT_MS_DEFAULT = 10_000
const CONNECT_TIMEOUT_MS_DEFAULT = 3000
const RETRY_MS_DEFAULT = 10_000
/** No PerKV server accepts longer bodies or sends longer answers. */
const ANSWER_BYTES_MAX = 512 * 1024 * 1024
const PROBLEM_BYTES_MAX = 64 * 1024 * 1024
/** Types of messages and problems. Other types are read as MessagePack. */
const MESSAGES = /^application\//i
const PAUSE_MS_FIRST = 25
const PAUSE_MS_MAX = 1000

/** A gateway without a server behind it, a server that is not available at present, a timeout. */
const RETRIED_STATUSES: ReadonlySet<number> = new Set([502, 503, 504])

/**
 * Node's error codes that mean that no connection was made, unless they concern reads or writes of an open one. Browsers do not
 * report them.
 */
const NEVER_SENT: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
])

interface Authorization {
  readonly authorization?: string
}

/** An answer whose status is known. */
interface OpenAnswer {
  readonly answer: ReceivedAnswer
  /** Ends the request; reading its body rejects with the reason. */
  abort(reason: unknown): void
  /** Limits the time for the rest of the answer, if less is not left already. Infinity: no limit. */
  limitRest(ms: number): void
  /** Must be called when the answer was read, or will not be. */
  close(): void
}

type Attempt<T> =
  | { readonly answer: T }
  | { readonly error: Error; readonly isFinal: boolean; readonly retryAfter: string | null }

/** Sends requests to one server. Repeats each until it is answered or the time for retries is over. */
export class HttpTransport {
  readonly #url: string
  readonly #sender: Sender
  readonly #headers: () => Readonly<Record<string, string>>
  readonly #token: Token | undefined
  readonly #requestTimeoutMs: number
  readonly #connectTimeoutMs: number
  readonly #retryMs: number
  readonly #onRetry: TransportOptions['onRetry']
  /** Whether the server has ever sent an answer. */
  #wasReached = false

  /** @param url without a slash at its end. @throws TypeError for invalid headers or an invalid token. */
  constructor(url: string, options: TransportOptions = {}) {
    this.#url = url
    // Browsers refuse to call fetch as a method of another object.
    const fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init))
    const sender = options.fetch === undefined ? nodeSender(url, options.ca) : undefined
    if (sender === undefined && options.ca !== undefined)
      throw new TypeError('connect: ca goes only with node:https, and not with fetch, browsers or Node before 20.16')
    this.#sender = sender ?? fetchSender(url, fetch)
    const { headers } = options
    const fixed = typeof headers === 'function' ? {} : normalized(headers)
    this.#headers = typeof headers === 'function' ? () => normalized(headers()) : () => fixed
    this.#token = typeof options.token === 'string' ? requireToken(options.token) : options.token
    this.#requestTimeoutMs = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS_DEFAULT
    this.#connectTimeoutMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS_DEFAULT
    this.#retryMs = options.retryMs ?? RETRY_MS_DEFAULT
    this.#onRetry = options.onRetry
  }

  /**
   * @returns the answer to a successful request.
   * @throws KvError or ServerError, as the server answered; ConnectionError when no usable answer came in time, or when the last
   *   try was refused but an earlier one may have taken effect; the signal's reason.
   */
  send(request: HttpRequest): Promise<HttpAnswer> {
    return this.#untilAnswered(request, async (open) => {
      const { status, headers } = open.answer
      // The wait for other transactions is over.
      open.limitRest(this.#requestTimeoutMs)
      return { status, headers, body: await bodyOf(open, ANSWER_BYTES_MAX) }
    })
  }

  /** Sends a request whose answer has no end. @returns once the server has begun to answer. @throws the errors of `send` */
  stream(request: HttpStreamRequest): Promise<HttpStream> {
    return this.#untilAnswered(request, async (open) => {
      open.limitRest(Number.POSITIVE_INFINITY)
      const close = (): void => {
        open.close()
        open.abort(new Error('the answer is not wanted any more'))
      }
      return { chunks: chunksOf(open, request), close }
    })
  }

  /** @param read reads a successful answer, and closes it. */
  async #untilAnswered<T>(request: HttpRequest, read: (open: OpenAnswer) => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    let mayHaveTakenEffect = false
    let pauseMs = PAUSE_MS_FIRST
    for (let tries = 1; ; tries++) {
      const ended = (reason: unknown): unknown => (request.isWrite && mayHaveTakenEffect ? inDoubt(reason) : reason)
      if (request.signal?.aborted) throw ended(request.signal.reason)
      const attempt = await this.#attempt(request, startedAt, read).catch((reason: unknown) => {
        mayHaveTakenEffect = true
        throw ended(reason)
      })
      if ('answer' in attempt) return attempt.answer
      const { error, isFinal, retryAfter } = attempt
      if (isFinal) {
        throw mayHaveTakenEffect ? refusedRepetition(error) : error
      }
      mayHaveTakenEffect ||= !isReading(request) && isUncertain(error)
      const waitMs = Math.max(pauseMs * (0.5 + Math.random() / 2), retryAfterMs(retryAfter))
      const budgetMs = this.#wasReached ? this.#retryMs : Math.min(this.#retryMs, this.#connectTimeoutMs)
      if (performance.now() + waitMs > startedAt + budgetMs)
        throw this.#lastError(request, error, tries, mayHaveTakenEffect)
      if (this.#wasReached) this.#onRetry?.(error, tries)
      await sleep(waitMs, request.signal).catch((reason: unknown) => {
        throw ended(reason)
      })
      pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2)
    }
  }

  /** Closes idle connections. */
  close(): void {
    this.#sender.close()
  }

  /** @throws the error of the caller's function; TypeError when the function returns an invalid token. */
  async #authorization(): Promise<Authorization> {
    if (this.#token === undefined) return {}
    const token = typeof this.#token === 'string' ? this.#token : requireToken(await this.#token())
    return { authorization: `Bearer ${token}` }
  }

  async #attempt<T>(
    request: HttpRequest,
    startedAt: number,
    read: (open: OpenAnswer) => Promise<T>,
  ): Promise<Attempt<T>> {
    let given: Readonly<Record<string, string>>
    try {
      given = { ...this.#headers(), ...(await this.#authorization()) }
    } catch (error) {
      return { error: error instanceof Error ? error : new Error(String(error)), isFinal: true, retryAfter: null }
    }
    try {
      const open = await this.#open(request, given, startedAt)
      const { status, headers } = open.answer
      const isSuccess = status >= 200 && status < 300
      if (isSuccess && isExpected(headers, request.expects)) return { answer: await read(open) }
      const type = headers.get('content-type')
      if (isSuccess || (type !== null && !MESSAGES.test(type))) {
        open.close()
        open.abort(new Error('the answer is not read'))
        const error = unexpectedAnswer(status, `HTTP ${status} with ${type ?? 'a body of no type'}`)
        return { error, isFinal: !RETRIED_STATUSES.has(status), retryAfter: headers.get('retry-after') }
      }
      const error = errorOf(status, type, await bodyOf(open, PROBLEM_BYTES_MAX))
      return {
        error,
        isFinal: !RETRIED_STATUSES.has(status) || isKvError(error, 'deadline_exceeded'),
        retryAfter: headers.get('retry-after'),
      }
    } catch (error) {
      if (request.signal?.aborted) throw request.signal.reason
      if (error instanceof AnswerTooLong)
        return { error: unexpectedAnswer(200, error.message), isFinal: true, retryAfter: null }
      return { error: connectionErrorOf(error, isReading(request)), isFinal: false, retryAfter: null }
    }
  }

  /** Sends one request. Resolves when the status of its answer is known. */
  async #open(request: HttpRequest, given: Readonly<Record<string, string>>, startedAt: number): Promise<OpenAnswer> {
    const { method, path, headers, body, waitMs = 0, signal } = request
    signal?.throwIfAborted() // The abort event may have fired already, and it fires only once.
    // Not AbortSignal.any: in Node 20 its result stays in memory as long as the caller's signal.
    const controller = new AbortController()
    const unlisten = onAbort(signal, () => controller.abort(signal?.reason))
    const timeoutMs = Math.min(this.#requestTimeoutMs + waitMs, TIMER_MS_MAX)
    let timer = setTimeout(() => controller.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
    const endsAt = performance.now() + timeoutMs
    const limitRest = (ms: number): void => {
      if (performance.now() + ms >= endsAt && ms !== Number.POSITIVE_INFINITY) return
      clearTimeout(timer)
      const end = (): void => controller.abort(new Error(`no end of the answer within ${ms} ms`))
      if (ms !== Number.POSITIVE_INFINITY) timer = setTimeout(end, Math.min(ms, TIMER_MS_MAX))
    }
    const stopWatching = this.#wasReached ? undefined : this.#watchConnecting(controller, startedAt)
    const close = (): void => {
      clearTimeout(timer)
      unlisten()
    }
    try {
      const init = {
        method,
        headers: { ...given, accept: MSGPACK, ...headers },
        signal: controller.signal,
        ...(body === undefined ? {} : { body: body as Uint8Array<ArrayBuffer> }),
      }
      const answer = await this.#sender.send(path, init)
      this.#wasReached = true
      return { answer, abort: (reason) => controller.abort(reason), limitRest, close }
    } catch (error) {
      close()
      throw error
    } finally {
      stopWatching?.()
    }
  }

  /**
   * Watches a request that has no answer yet. No sender distinguishes a slow server from one that accepts no connection, so a
   * second request asks for `/healthz`. If that one gets no answer in time either, both are ended.
   * @returns the function that ends the watch.
   */
  #watchConnecting(request: AbortController, startedAt: number): () => void {
    const leftMs = Math.max(0, startedAt + this.#connectTimeoutMs - performance.now())
    const probe = new AbortController()
    const ask = async (): Promise<void> => {
      // A second timer instead of one long timer: answers that arrived while the program was busy are read in between.
      timer = setTimeout(
        () => request.abort(new Error(`no connection within ${this.#connectTimeoutMs} ms`)),
        Math.min(leftMs / 2, TIMER_MS_MAX),
      )
      try {
        const init = { method: 'GET', headers: this.#headers(), signal: probe.signal }
        const response = await this.#sender.send('/healthz', init)
        this.#wasReached = true
        clearTimeout(timer)
        await response.arrayBuffer(PROBLEM_BYTES_MAX)
      } catch {} // The request itself reports the reason.
    }
    let timer = setTimeout(() => void ask(), Math.min(leftMs / 2, TIMER_MS_MAX))
    return () => {
      clearTimeout(timer)
      probe.abort()
    }
  }

  #lastError(request: HttpRequest, last: Error, tries: number, mayHaveTakenEffect: boolean): Error {
    const isAnswer = !(last instanceof ConnectionError) && !isUnexpected(last)
    if (isAnswer && (isReading(request) || isUncertain(last) === mayHaveTakenEffect)) return last
    const { method, path } = request
    const failed = this.#wasReached
      ? `${method} ${this.#url}${path.replace(/\?.*/, '')} failed`
      : `no server was reached at ${this.#url}`
    return new ConnectionError(`${failed}, tried ${tries === 1 ? 'once' : `${tries} times`}: ${last.message}`, {
      cause: last instanceof ConnectionError ? last.cause : last,
      mayHaveTakenEffect,
    })
  }
}

/**
 * Percolator calls never count as reads: a coordinator that looks for the outcome of a commit must not conclude from a failed
 * read that nothing has changed.
 */
function isReading({ method, isRead = method === 'GET' }: HttpRequest): boolean {
  return isRead
}

/**
 * Whether the answer may come from PerKV. Without this look at its headers, all of a file or of an endless page would be read
 * first.
 */
function isExpected(headers: Pick<Headers, 'get'>, expects: HttpRequest['expects']): boolean {
  if (expects === 'value') return versionOf(headers.get('etag')) !== undefined
  const type = headers.get('content-type')
  if (expects === 'text') return /^text\/plain\b/i.test(type ?? '')
  return expects === 'events' ? /^text\/event-stream\b/i.test(type ?? '') : type === null || MESSAGES.test(type)
}

export function versionOf(etag: string | null): Timestamp | undefined {
  const [, digits] = /^"(\d+)"$/.exec(etag ?? '') ?? []
  return digits === undefined ? undefined : Number(digits)
}

async function bodyOf({ answer, abort, close }: OpenAnswer, bytesMax: number): Promise<Uint8Array> {
  try {
    return new Uint8Array(await answer.arrayBuffer(bytesMax))
  } catch (error) {
    abort(error)
    throw error
  } finally {
    close()
  }
}

async function* chunksOf(
  { answer, abort }: OpenAnswer,
  { silentMsMax, signal }: HttpStreamRequest,
): AsyncGenerator<Uint8Array, void> {
  const chunks = answer.chunks()[Symbol.asyncIterator]()
  const end = (): void => abort(new Error(`nothing has arrived for ${silentMsMax} ms`))
  try {
    for (;;) {
      const timer = setTimeout(end, Math.min(silentMsMax, TIMER_MS_MAX))
      const { done, value } = await chunks.next().finally(() => clearTimeout(timer))
      if (done === true) return
      yield value
    }
  } catch (error) {
    if (!signal?.aborted) throw connectionErrorOf(error, true)
  }
}

/** Whether a request failed because the server cannot be reached, or cannot serve at present. */
export function isAway(error: unknown): boolean {
  if (error instanceof ConnectionError) return true
  if (isKvError(error, 'deadline_exceeded')) return false
  if (error instanceof KvError) return RETRIED_STATUSES.has(errorRow(error.code).status)
  return error instanceof ServerError && RETRIED_STATUSES.has(error.status)
}

/** Checked here, because the error messages of senders would contain the token. */
function requireToken(token: string): string {
  if (typeof token === 'string' && /^[\x21-\x7e]+$/.test(token)) return token
  throw new TypeError('the token is not one or more visible ASCII characters')
}

/**
 * Corrects the error of a refused repetition: the earlier request, whose answer was lost, may have taken effect, or may still
 * arrive when the reason for the refusal is gone.
 */
function refusedRepetition(error: Error): Error {
  return 'mayHaveTakenEffect' in error ? Object.assign(error, { mayHaveTakenEffect: true }) : error
}

function isUnexpected(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'unexpected_answer'
}

/** Node's fetch rejects with "fetch failed" for every reason, and has the real error in `cause`. */
function connectionErrorOf(error: unknown, isRead: boolean): ConnectionError {
  const reason = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const { code, syscall }: Partial<NodeJS.ErrnoException> = reason instanceof Error ? reason : {}
  const message = messageOf(reason) || String(code ?? reason)
  const wasNeverSent = NEVER_SENT.has(code) && syscall !== 'read' && syscall !== 'write'
  return new ConnectionError(message, { cause: error, mayHaveTakenEffect: !isRead && !wasNeverSent })
}

/** A name with several addresses fails with one error per address. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join(', ')
  return error instanceof Error ? error.message : ''
}

/** @throws TypeError for invalid names and values of headers. */
function normalized(headers: Readonly<Record<string, string>> | undefined): Readonly<Record<string, string>> {
  return headers === undefined ? {} : Object.fromEntries(new Headers(headers))
}
