import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request as requestByHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestByHttps } from 'node:https'
import type { Socket } from 'node:net'

export const FORWARDED = 'perkv-forwarded'

/** Longest time to connect to another server. */
const CONNECT_MS_MAX = 3000
/** Servers close connections that are idle for longer than they say (`Keep-Alive`). */
const IDLE_MS_MAX = 30_000
const FREE_SOCKETS_MAX = 64

/** Headers that routes read. Headers of browsers are left out: this server has checked them. */
const REQUEST_HEADERS = [
  'authorization',
  'accept',
  'content-type',
  'content-length',
  'idempotency-key',
  'if-match',
  'if-none-match',
  'traceparent',
  'tracestate',
]
/** Headers of one connection, not of the answer. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'date',
  'keep-alive',
  'proxy-authenticate',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

export interface Forwarding {
  /**
   * Forwards a request unchanged, streaming its body.
   * @param url of the other server. @param target path and query. @param signal ends it, and cuts the answer off.
   * @returns the answer with its body as a stream; undefined when there was no connection: nothing was sent, and no body was
   *   read. Rejects when it was sent and not answered, or ended.
   */
  send(url: string, target: string, request: IncomingMessage, signal: AbortSignal): Promise<IncomingMessage | undefined>
  close(): void
}

export function openForwarding(): Forwarding {
  // Unlimited: each busy connection belongs to a request of a client, and requests may wait for locks for as long as clients
  // like.
  const options = { keepAlive: true, maxFreeSockets: FREE_SOCKETS_MAX, timeout: IDLE_MS_MAX }
  const httpAgent = new HttpAgent(options)
  const httpsAgent = new HttpsAgent(options)

  return {
    send(url, target, request, signal) {
      const { protocol, hostname, port, pathname } = new URL(url)
      const isSecure = protocol === 'https:'
      const upstream = (isSecure ? requestByHttps : requestByHttp)({
        ...{ protocol, port, signal, method: request.method },
        hostname: hostname.replace(/^\[(.*)\]$/, '$1'),
        agent: isSecure ? httpsAgent : httpAgent,
        path: `${pathname.replace(/\/$/, '')}${target}`, // Not as a URL, which would resolve the dots of a key.
        headers: headersFor(request),
      })
      return exchange(upstream, request, signal, isSecure ? 'secureConnect' : 'connect')
    },
    close() {
      httpAgent.destroy()
      httpsAgent.destroy()
    },
  }
}

function exchange(
  upstream: ClientRequest,
  request: IncomingMessage,
  signal: AbortSignal,
  connected: 'connect' | 'secureConnect',
): Promise<IncomingMessage | undefined> {
  return new Promise((resolve, reject) => {
    let isSent = false
    const late = setTimeout(() => upstream.destroy(new Error('no connection')), CONNECT_MS_MAX)
    const begin = (): void => {
      clearTimeout(late)
      isSent = true
      sendBody(request, upstream)
    }
    upstream.once('socket', (socket: Socket) => {
      if (upstream.reusedSocket || !socket.connecting) begin()
      else socket.once(connected, begin)
    })
    upstream.on('response', (response) => {
      response.on('close', () => stopBody(request, upstream))
      resolve(response)
    })
    upstream.on('error', (error) => {
      clearTimeout(late)
      if (isSent) stopBody(request, upstream)
      if (isSent || signal.aborted) reject(error)
      else resolve(undefined)
    })
  })
}

function sendBody(request: IncomingMessage, upstream: ClientRequest): void {
  if (request.method === 'GET' || request.method === 'HEAD') return void upstream.end()
  request.askForBody?.()
  request.pipe(upstream)
}

/** Discards the rest of the body, so that the client's connection stays usable. */
function stopBody(request: IncomingMessage, upstream: ClientRequest): void {
  request.unpipe(upstream)
  request.resume()
}

function headersFor({ method, headers }: IncomingMessage): Record<string, string> {
  const sent: Record<string, string> = { [FORWARDED]: '1' }
  for (const name of REQUEST_HEADERS) {
    const value = headers[name]
    if (typeof value === 'string') sent[name] = value
  }
  if (method === 'GET' || method === 'HEAD') delete sent['content-length']
  else if (headers['transfer-encoding'] !== undefined) sent['transfer-encoding'] = 'chunked'
  else sent['content-length'] ??= '0'
  return sent
}

export function answerHeaders({ headers }: IncomingMessage): Record<string, string | string[]> {
  const passed: Record<string, string | string[]> = {}
  for (const name in headers) {
    const value = headers[name]
    if (value !== undefined && !HOP_BY_HOP.has(name)) passed[name] = value
  }
  return passed
}
