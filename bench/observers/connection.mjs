// One keep-alive connection, whose requests wait for each other, for programs that decide what to send next.
import { once } from 'node:events'
import { connect } from 'node:net'
import { bytesOf } from '../ratios/request.mjs'

const EMPTY = Buffer.alloc(0)

export class Connection {
  #socket
  #unread = EMPTY
  #waiting

  static async open(url) {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port, noDelay: true })
    await once(socket, 'connect')
    return new Connection(socket)
  }

  constructor(socket) {
    this.#socket = socket
    socket.on('data', (chunk) => {
      this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk])
      const answer = answerOf(this.#unread)
      if (answer === undefined) return
      this.#unread = EMPTY
      this.#waiting.resolve(answer)
    })
    socket.on('error', (error) => this.#waiting?.reject(error))
    socket.on('close', () => this.#waiting?.reject(new Error('a server closed the connection')))
  }

  /** @returns {Promise<{ status: number, body: Buffer }>} */
  ask(request) {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject }
      this.#socket.write(bytesOf(request))
    })
  }

  /** @returns the body, as JSON. @throws unless its status is 2xx. */
  async json(request) {
    const { status, body } = await this.ask(request)
    if (status >= 300) throw new Error(`${request.method} ${request.path} was answered with ${status}: ${body}`)
    return JSON.parse(body)
  }

  close() {
    this.#socket.destroy()
  }
}

/** @returns undefined until the answer is whole. */
function answerOf(bytes) {
  const headEnd = bytes.indexOf('\r\n\r\n')
  if (headEnd < 0) return undefined
  const head = bytes.latin1Slice(0, headEnd)
  const status = Number(head.slice(9, 12))
  const rest = bytes.subarray(headEnd + 4)
  if (/\r\ntransfer-encoding: *chunked/i.test(head)) {
    const body = unchunked(rest)
    return body && { status, body }
  }
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
  return rest.length < length ? undefined : { status, body: rest }
}

/** @returns undefined until the last chunk is there. */
function unchunked(bytes) {
  const chunks = []
  for (let at = 0; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at)
    if (lineEnd < 0) return undefined
    const size = Number.parseInt(bytes.latin1Slice(at, lineEnd), 16)
    const end = lineEnd + 2 + size
    if (bytes.length < end + 2) return undefined
    if (size === 0) return Buffer.concat(chunks)
    chunks.push(bytes.subarray(lineEnd + 2, end))
    at = end + 2
  }
}

/** Opens some, uses them, closes them. */
export async function withConnections(url, count, use) {
  const connections = await Promise.all(Array.from({ length: count }, () => Connection.open(url)))
  try {
    return await use(connections)
  } finally {
    for (const connection of connections) connection.close()
  }
}
