import { once } from 'node:events'
import { connect } from 'node:net'
import { bytesOf } from './requests.mjs'

const TIMEOUT_MS = 120_000
const LAST_CHUNK = Buffer.from('0\r\n\r\n')
/** Nothing is known yet of an answer. */
const NOTHING = { length: 0, isChunked: false }

/** A keep-alive connection with one request in flight; the others wait for it. A bare socket: it costs little beside a server. */
export class Connection {
  #socket
  /** Of the answer that is not whole yet. */
  #pieces = []
  #bytes = 0
  #missing = NOTHING
  /** The first one is in flight. */
  #asked = []
  #failure

  static async open(url) {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    await once(socket, 'connect')
    return new Connection(socket)
  }

  constructor(socket) {
    this.#socket = socket
    socket.on('data', (chunk) => this.#take(chunk))
    socket.on('error', (error) => this.#fail(error))
    socket.on('close', () => this.#fail(new Error('a server closed a connection')))
    socket.setTimeout(TIMEOUT_MS, () => {
      if (this.#asked.length > 0) this.#fail(new Error(`no answer within ${TIMEOUT_MS} ms`))
    })
  }

  get isOpen() {
    return this.#failure === undefined
  }

  /** @param answered is called with an error, or with undefined, the status and the body. */
  send(bytes, answered) {
    if (this.#failure !== undefined) return answered(this.#failure)
    this.#asked.push({ bytes, answered })
    if (this.#asked.length === 1) this.#socket.write(bytes)
  }

  /** @returns {Promise<{ status: number, body: Buffer }>} */
  ask(request) {
    return new Promise((resolve, reject) =>
      this.send(bytesOf(request), (error, status, body) => (error ? reject(error) : resolve({ status, body }))),
    )
  }

  /** @returns the JSON of the body. @throws unless the status is 2xx, with the `status`. */
  async call(request) {
    const { status, body } = await this.ask(request)
    if (status >= 300) throw failureOf(request, status, body)
    return body.length === 0 ? undefined : JSON.parse(body)
  }

  close() {
    this.#failure = new Error('the connection is closed')
    this.#socket.destroy()
  }

  #take(chunk) {
    this.#pieces.push(chunk)
    this.#bytes += chunk.length
    const { length, isChunked } = this.#missing
    // To join all pieces for each one that comes would take quadratic time.
    if (
      this.#bytes < length ||
      (isChunked && chunk.length >= LAST_CHUNK.length && !chunk.subarray(-LAST_CHUNK.length).equals(LAST_CHUNK))
    )
      return
    const bytes = this.#pieces.length === 1 ? chunk : Buffer.concat(this.#pieces)
    const answer = answerOf(bytes)
    this.#missing = answer.status === undefined ? answer : NOTHING
    if (answer.status === undefined) {
      this.#pieces = [bytes]
      return
    }
    this.#pieces = []
    this.#bytes = 0
    const { answered } = this.#asked.shift()
    if (this.#asked.length > 0) this.#socket.write(this.#asked[0].bytes)
    answered(undefined, answer.status, answer.body)
  }

  #fail(error) {
    this.#failure ??= error
    for (const { answered } of this.#asked.splice(0)) answered(this.#failure)
  }
}

export const failureOf = ({ method, path }, status, body) =>
  Object.assign(new Error(`${method} ${path} was answered ${status}: ${body.subarray(0, 1000)}`), { status })

/** @returns the answer; until it is whole, its `length` with the head, or that it `isChunked`. */
function answerOf(bytes) {
  const headEnd = bytes.indexOf('\r\n\r\n')
  if (headEnd < 0) return NOTHING
  const head = bytes.latin1Slice(0, headEnd)
  const status = Number(head.slice(9, 12))
  const rest = bytes.subarray(headEnd + 4)
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
  if (length === undefined && /\r\ntransfer-encoding: *chunked/i.test(head)) {
    const body = unchunked(rest)
    return body ? { status, body } : { length: 0, isChunked: true }
  }
  const whole = headEnd + 4 + Number(length ?? 0)
  return bytes.length < whole ? { length: whole, isChunked: false } : { status, body: rest }
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

const OPENED_TOGETHER = 100

/** @param urlOf of the n-th connection. */
export async function openConnections(count, urlOf) {
  const connections = []
  while (connections.length < count) {
    const from = connections.length
    const together = Array.from({ length: Math.min(OPENED_TOGETHER, count - from) }, (_, n) =>
      Connection.open(urlOf(from + n)),
    )
    connections.push(...(await Promise.all(together)))
  }
  return connections
}

/** Opens connections, uses each of them by `use(connection, i)`, and closes them. */
export async function withConnections(url, count, use) {
  const connections = await openConnections(count, () => url)
  try {
    return await Promise.all(connections.map(use))
  } finally {
    for (const connection of connections) connection.close()
  }
}
