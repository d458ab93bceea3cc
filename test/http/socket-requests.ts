import { Agent, type IncomingMessage, request } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { expect } from 'vitest'
import type { Headers, Method, Sent } from './sent.js'

/** As `inject` calls itself. */
const HOST = 'localhost:80'
/** Headers that do not take a request out of the fast lane. */
const PLAIN_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'authorization',
  'content-type',
  'x-denokv-database-id',
  'x-denokv-version',
])
const KV_CONNECT = /^\/kv-connect\/[^/]+\/(?:snapshot_read|atomic_write)$/
const HEAD_BYTES_MAX = 4 * 1024
const BODY_BYTES_MAX = 16 * 1024
const LEASE_BODY_BYTES_MAX = 1024
/** Refusals of the request as such are worded by the routes, and so is everything about overload. */
const ANSWERED_BY_LANE: ReadonlySet<number> = new Set([200, 404, 409, 412, 423])

interface ListeningApp {
  readonly app: FastifyInstance
  /** @returns the port. */
  listen(): Promise<number>
}

/**
 * Sends requests through sockets that are kept alive, with as few headers as a request needs, so that the fast lane takes
 * them. Each answer is held to have come from the fast lane where the request was in its subset.
 */
export class SocketRequests {
  readonly #server: ListeningApp
  readonly #agent = new Agent({ keepAlive: true, noDelay: true })
  /** Requests that reached node:http, by the port of their client. */
  readonly #portsOfNode = new Set<number>()

  constructor(server: ListeningApp) {
    this.#server = server
    server.app.server.prependListener('request', ({ socket }: IncomingMessage) => {
      this.#portsOfNode.add(socket.remotePort ?? 0)
    })
  }

  /** Whether a request is for a route that the fast lane serves too. */
  static mayBeFast(method: Method, url: string): boolean {
    if (method === 'POST') return url === '/v1/txn' || KV_CONNECT.test(url)
    if (isLease(url)) return method === 'PUT'
    return (method === 'GET' || method === 'PUT' || method === 'DELETE') && url.startsWith('/v1/kv/')
  }

  async send(method: Method, url: string, headers: Headers, payload: string | Buffer | undefined): Promise<Sent> {
    const body = payload === undefined ? undefined : Buffer.from(payload)
    const { pathname, search } = new URL(url, `http://${HOST}`) // As `inject` rewrites it.
    const answer = await this.#exchange(await this.#server.listen(), method, pathname + search, headers, body)
    if (
      !answer.isFast &&
      ANSWERED_BY_LANE.has(answer.sent.statusCode) &&
      SocketRequests.mayBeFast(method, pathname) && // `/v1/kv/..` has become `/v1/`.
      isInSubset(method, pathname + search, headers, body)
    )
      expect.fail(`${method} ${url}: the fast lane did not answer it`)
    return answer.sent
  }

  #exchange(port: number, method: Method, path: string, headers: Headers, body: Buffer | undefined) {
    return new Promise<{ readonly sent: Sent; readonly isFast: boolean }>((resolve, reject) => {
      const length = body === undefined && method !== 'PUT' ? {} : { 'content-length': body?.length ?? 0 }
      const all = { host: HOST, ...headers, ...length }
      const sent = request({ port, host: '127.0.0.1', agent: this.#agent, method, path, headers: all }, (answer) => {
        const { socket } = answer
        const { localPort = 0 } = socket
        const chunks: Buffer[] = []
        answer.on('data', (chunk) => chunks.push(chunk)).on('error', reject)
        answer.on('end', () => {
          const isFast = !this.#portsOfNode.delete(localPort)
          if (!isFast) socket.destroy() // It has left the fast lane for good.
          resolve({ sent: sentOf(answer, Buffer.concat(chunks)), isFast })
        })
      })
      sent.once('error', reject)
      sent.end(body)
    })
  }
}

function isLease(path: string): boolean {
  return path.startsWith('/v1/leases/')
}

function isInSubset(method: Method, path: string, headers: Headers, body: Buffer | undefined): boolean {
  const isExpiring = method === 'PUT' && /^[^?]*\?(ttl_ms|expire_ts)=\d+$/.test(path)
  if (
    (path.includes('?') && !isExpiring) ||
    !Object.keys(headers).every((name) => PLAIN_HEADERS.has(name.toLowerCase()))
  )
    return false
  if (path.length + Object.values(headers).join('').length > HEAD_BYTES_MAX) return false
  if (method === 'GET' || method === 'DELETE') return body === undefined
  const isShort = (body?.length ?? 0) <= (isLease(path) ? LEASE_BODY_BYTES_MAX : BODY_BYTES_MAX)
  if (!isShort || (isLease(path) && body?.includes('"wait_ms":'))) return false
  if (KV_CONNECT.test(path)) return body !== undefined
  return (method === 'PUT' && !isLease(path)) || headers['content-type'] === 'application/json'
}

function sentOf({ statusCode = 0, headers }: IncomingMessage, rawPayload: Buffer): Sent {
  const body = rawPayload.toString('utf8')
  return { statusCode, headers, body, rawPayload, json: () => JSON.parse(body) }
}
