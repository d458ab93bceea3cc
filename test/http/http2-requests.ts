import { type ClientHttp2Session, connect, type IncomingHttpHeaders, type IncomingHttpStatusHeader } from 'node:http2'
import type { Headers, Method, Sent } from './sent.js'

/** As `inject` calls itself. */
const HOST = 'localhost:80'

/** Sends requests through one connection of HTTP/2. */
export class Http2Requests {
  #session: Promise<ClientHttp2Session> | undefined

  constructor(readonly server: { listen(): Promise<number> }) {}

  session(): Promise<ClientHttp2Session> {
    this.#session ??= this.server.listen().then((port) => connect(`http://127.0.0.1:${port}`).on('error', () => {}))
    return this.#session
  }

  async send(method: Method, url: string, headers: Headers = {}, payload?: string | Buffer): Promise<Sent> {
    const { pathname, search } = new URL(url, `http://${HOST}`) // As `inject` rewrites it.
    const session = await this.session()
    const { host = HOST, ...given } = headers
    // HTTP/1.1 strips the spaces around a value, and HTTP/2 permits none.
    const rest = Object.fromEntries(
      Object.entries(given).map(([name, value]) => [name, typeof value === 'string' ? value.trim() : value]),
    )
    const target = { ':method': method, ':path': pathname + search, ':authority': host }
    const length = payload === undefined ? {} : { 'content-length': Buffer.byteLength(payload) }
    const stream = session.request({ ...rest, ...length, ...target }, { endStream: payload === undefined })
    return new Promise((resolve, reject) => {
      const pieces: Buffer[] = []
      let head: IncomingHttpHeaders & IncomingHttpStatusHeader = {}
      stream.on('response', (received) => (head = received))
      stream.on('data', (piece: Buffer) => pieces.push(piece)).on('error', reject)
      stream.on('aborted', () => reject(new Error('the server has cut the answer off')))
      stream.on('end', () => {
        const rawPayload = Buffer.concat(pieces)
        const body = rawPayload.toString('utf8')
        resolve({ statusCode: head[':status'] ?? 0, headers: head, body, rawPayload, json: () => JSON.parse(body) })
      })
      if (payload !== undefined) stream.end(payload)
    })
  }
}
