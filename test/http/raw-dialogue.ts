import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, vi } from 'vitest'
import { turn } from '../store/support.js'

export interface RawAnswer {
  readonly status: number
  /** Lines of the head, behind the status line. */
  readonly head: string
  readonly body: string
}

/** A client that writes bytes as they are, and keeps its socket open for reading when it has ended its side. */
export class RawClient {
  #received = Buffer.alloc(0)
  isClosed = false

  private constructor(readonly socket: Socket) {
    socket.setNoDelay(true).on('error', () => {})
    socket.on('data', (bytes) => {
      this.#received = Buffer.concat([this.#received, bytes])
    })
    socket.on('end', () => socket.end())
    socket.on('close', () => {
      this.isClosed = true
    })
  }

  static async open(port: number): Promise<RawClient> {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    await once(socket, 'connect')
    return new RawClient(socket)
  }

  get text(): string {
    return this.#received.toString('latin1')
  }

  /** The whole answers that have come. */
  get answers(): RawAnswer[] {
    const answers: RawAnswer[] = []
    for (let rest = this.text; rest !== ''; ) {
      const bodyAt = rest.indexOf('\r\n\r\n') + 4
      if (bodyAt < 4) break
      const head = rest.slice(0, bodyAt)
      const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1] ?? Number.NaN)
      const length = /^content-length: (\d+)\r$/im.exec(head)?.[1]
      const [body, end] = length === undefined ? chunkedBody(rest, bodyAt) : [undefined, bodyAt + Number(length)]
      if (end > rest.length) break
      answers.push({ status, head, body: body ?? rest.slice(bodyAt, end) })
      rest = rest.slice(end)
    }
    return answers
  }

  get statuses(): number[] {
    return this.answers.map(({ status }) => status)
  }

  async write(...pieces: readonly (string | Buffer)[]): Promise<void> {
    for (const piece of pieces) {
      this.socket.write(piece, 'latin1')
      await turn()
    }
  }

  /** @returns the answers, when the server has closed the connection. */
  async closed(): Promise<RawAnswer[]> {
    await vi.waitFor(() => expect(this.isClosed).toBe(true), { timeout: 30_000, interval: 5 })
    return this.answers
  }

  async answered(count: number): Promise<RawAnswer[]> {
    await vi.waitFor(() => expect(this.answers.length).toBeGreaterThanOrEqual(count), { timeout: 30_000, interval: 5 })
    return this.answers
  }
}

/** @returns the body, and where it ends; without chunks there is no body, as behind 100 or 304. */
function chunkedBody(text: string, bodyAt: number): [string, number] {
  if (!/^transfer-encoding: chunked\r$/im.test(text.slice(0, bodyAt))) return ['', bodyAt]
  let body = ''
  for (let at = bodyAt; ; ) {
    const lineEnd = text.indexOf('\r\n', at)
    const size = Number.parseInt(text.slice(at, lineEnd), 16)
    if (lineEnd === -1 || text.length < lineEnd + 2 + size + 2) return [body, Number.POSITIVE_INFINITY]
    if (size === 0) return [body, lineEnd + 4]
    body += text.slice(lineEnd + 2, lineEnd + 2 + size)
    at = lineEnd + 2 + size + 2
  }
}

/** Writes pieces, ends its side, and @returns the answers. */
export async function talk(port: number, ...pieces: readonly (string | Buffer)[]): Promise<RawAnswer[]> {
  const client = await RawClient.open(port)
  await client.write(...pieces.slice(0, -1))
  client.socket.end(pieces.at(-1) ?? '', 'latin1')
  return client.closed()
}

/** A request without `Connection: close`. */
export function asked(line: string, headers: readonly string[] = [], body?: string): string {
  const length = body === undefined ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]
  return [`${line} HTTP/1.1`, 'Host: test', ...length, ...headers, '', body ?? ''].join('\r\n')
}

export function askedJson(line: string, body: object, headers: readonly string[] = []): string {
  return asked(line, ['Content-Type: application/json', ...headers], JSON.stringify(body))
}
