import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { pipeline, Readable } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import { retryAfterMs } from '../client/http/retry-after.js'
import type { FlagReader, Flags } from '../server/flags.js'
import type { Timestamp } from '../timestamp.js'
import { shownText } from './client/shown.js'
import { SERVER_FLAGS, serverAddress } from './server-flags.js'

export const TRANSFER_FLAGS = {
  ...SERVER_FLAGS,
  quiet: { help: 'no progress, no summary' },
} as const satisfies Flags

/** A connection that is silent for this long is broken. A server may wait a minute for a lock. */
const IDLE_MS_MAX = 5 * 60_000
/** A server that has not answered by then counts as unreachable. */
const REACH_MS_MAX = 2500
const PROBLEM_BYTES_MAX = 1024 * 1024

export class Refused extends Error {
  override readonly name = 'Refused'
  constructor(
    readonly status: number,
    /** `unexpected_answer` when the answer is not PerKV's. */
    readonly code: string,
    readonly detail: string,
    readonly fields: Readonly<Record<string, unknown>>,
    readonly retryAfterMs: number,
  ) {
    super(shownText(`the server answered ${status} ${code}: ${detail}`))
  }

  /** The same request may succeed later. */
  get isPassing(): boolean {
    return this.status === 503 || this.status === 504 || this.status === 423
  }
}

/** There is no connection, or it broke. */
class Unreachable extends Error {
  override readonly name = 'Unreachable'
  readonly code = 'unreachable'
}

export interface Sent {
  readonly signal?: AbortSignal
  readonly headers?: Readonly<Record<string, string>>
  /** A stream is piped until the server has answered. */
  readonly body?: Buffer | Readable
}

export class RemoteServer {
  readonly #url: URL
  readonly #agent: HttpAgent | HttpsAgent
  readonly #authorization: Readonly<Record<string, string>>

  constructor(url: URL, token: string | undefined, ca: string | undefined) {
    this.#url = url
    const options = { keepAlive: true }
    this.#agent = url.protocol === 'https:' ? new HttpsAgent({ ...options, ...(ca && { ca }) }) : new HttpAgent(options)
    this.#authorization = token === undefined ? {} : { authorization: `Bearer ${token}` }
  }

  /** @param path begins with a slash. @returns an answer with a 2xx status. @throws Refused, Unreachable, errors of `body`. */
  send(method: string, path: string, { headers, body, signal }: Sent = {}): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const send = this.#url.protocol === 'https:' ? httpsRequest : httpRequest
      const target = `${this.#url.href.replace(/\/$/, '')}${path}`
      const request = send(target, {
        method,
        agent: this.#agent,
        headers: { ...this.#authorization, ...headers },
        ...(signal && { signal }),
      })
      const fail = (error: Error): void =>
        reject(new Unreachable(`${this.#url.origin}: ${signal?.aborted ? 'no answer' : reasonOf(error)}`))
      request.setTimeout(IDLE_MS_MAX, () => request.destroy(new Error('no answer')))
      request.on('error', fail)
      request.on('response', (response) => {
        const { statusCode = 0 } = response
        if (statusCode >= 200 && statusCode < 300) return resolve(response)
        refusalOf(response)
          .then(reject, fail)
          .finally(() => request.destroy())
      })
      if (!(body instanceof Readable)) return request.end(body)
      let source: Error | undefined
      body.once('error', (error) => {
        source = error
      })
      pipeline(body, request, () => source && reject(source)) // `fail` reports errors of the connection.
    })
  }

  /**
   * Checks that a server answers, before a command reads files or begins to retry. Any answer will do: the command's own
   * request finds out whether it is PerKV's.
   * @throws Unreachable
   */
  async requireReached(): Promise<void> {
    try {
      await this.drain(await this.send('GET', '/healthz', { signal: AbortSignal.timeout(REACH_MS_MAX) }))
    } catch (error) {
      if (!(error instanceof Refused)) throw error
    }
  }

  async json(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
    const sent = body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: jsonBytes(body) }
    const chunks: Uint8Array[] = []
    const response = await this.send(method, path, sent)
    for await (const chunk of this.bodyOf(response)) chunks.push(chunk)
    const answer = parsed(Buffer.concat(chunks))
    if (answer === undefined) throw unexpected(response.statusCode ?? 0)
    return answer
  }

  /** Counts the pairs of a snapshot. @returns undefined when the server does not say. @param range parameters, encoded. */
  async count(ts: Timestamp, range = ''): Promise<number | undefined> {
    const { count } = await this.json('GET', `/v1/kv?count_only=true&ts=${ts}${range}`)
    return typeof count === 'number' ? count : undefined
  }

  /** Requests a stream of a media type. @throws Refused `unexpected_answer` when the answer has another type. */
  async download(path: string, type: string): Promise<IncomingMessage> {
    const response = await this.send('GET', path, { headers: { accept: type } })
    if (response.headers['content-type']?.startsWith(type)) return response
    response.destroy()
    throw unexpected(response.statusCode ?? 0)
  }

  /** Yields the body of an answer. @throws Unreachable when the connection breaks. */
  async *bodyOf(response: IncomingMessage): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      yield* response
    } catch {
      throw new Unreachable(`${this.#url.origin}: the connection broke in the middle of an answer`)
    }
  }

  async drain(response: IncomingMessage): Promise<void> {
    for await (const _ of this.bodyOf(response));
  }

  close(): void {
    this.#agent.destroy()
  }
}

/** Whether a retry may help: the server was not reached, or has refused for the moment. */
export function isPassing(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Refused && error.isPassing)
}

/** A transfer is given up when this many connections in a row break without progress. */
export const BREAKS_MAX = 6

/** Waits 250 ms before the first new attempt of a transfer, and twice as long before each further one. */
export function pauseAfterBreak(breaks: number): Promise<void> {
  return pause(250 * 2 ** breaks)
}

/** Node reports one error per address of a name with several addresses. */
function reasonOf(error: Error): string {
  return error instanceof AggregateError ? error.errors.map(reasonOf).join(', ') : error.message || 'no answer'
}

export async function remoteServer(
  flags: FlagReader<keyof typeof TRANSFER_FLAGS>,
  env: NodeJS.ProcessEnv,
): Promise<RemoteServer> {
  const { url, token, ca } = serverAddress(flags, env)
  const server = new RemoteServer(url, token, ca)
  await server.requireReached()
  return server
}

function jsonBytes(body: unknown): Buffer {
  return Buffer.from(JSON.stringify(body))
}

async function refusalOf(response: IncomingMessage): Promise<Refused> {
  const status = response.statusCode ?? 0
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    length += chunk.length
    if (length > PROBLEM_BYTES_MAX) break
  }
  const retryMs = retryAfterMs(response.headers['retry-after'] ?? null)
  const { code, detail, ...fields } = parsed(Buffer.concat(chunks)) ?? {}
  return typeof code === 'string'
    ? new Refused(status, code, String(detail), fields, retryMs)
    : unexpected(status, retryMs)
}

export function unexpected(status: number, retryMs = 0): Refused {
  return new Refused(status, 'unexpected_answer', 'this is no PerKV server, or something stands before it', {}, retryMs)
}

/** @returns undefined unless the text is a JSON object. */
function parsed(json: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(json.toString('utf8'))
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}
