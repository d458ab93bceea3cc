import { connect } from 'node:net'

/** A keep-alive connection with one request in flight; the others wait for it. */
export class Connection {
  #socket
  #text = ''
  #isClosed = false
  /** The first one is in flight. */
  #asked = []

  static open({ hostname, port }) {
    return new Promise((resolve, reject) => {
      const socket = connect({ host: hostname, port: Number(port), noDelay: true })
      socket.once('connect', () => resolve(new Connection(socket))).once('error', reject)
    })
  }

  constructor(socket) {
    this.#socket = socket
    socket.on('data', (piece) => this.#take(piece))
    socket.on('close', () => {
      if (!this.#isClosed) throw new Error('the server has closed a connection')
    })
  }

  /** @param answered gets the status and the body. */
  send(bytes, answered) {
    this.#asked.push({ bytes, answered })
    if (this.#asked.length === 1) this.#socket.write(bytes)
  }

  close() {
    this.#isClosed = true
    this.#socket.destroy()
  }

  #take(piece) {
    this.#text += piece.latin1Slice()
    const headEnd = this.#text.indexOf('\r\n\r\n')
    if (headEnd === -1) return
    const length = Number(/content-length: (\d+)/i.exec(this.#text)?.[1] ?? Number.NaN)
    const end = Number.isNaN(length) ? this.#text.indexOf('\r\n0\r\n\r\n') + 1 : headEnd + 4 + length
    if (end === 0 || this.#text.length < end) return
    const body = this.#text.slice(headEnd + 4)
    const status = Number(this.#text.slice(9, 12))
    this.#text = ''
    const { answered } = this.#asked.shift()
    if (this.#asked.length > 0) this.#socket.write(this.#asked[0].bytes)
    answered(status, body)
  }
}

export function put(path, body) {
  const text = JSON.stringify(body)
  const head = `PUT ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n`
  return Buffer.from(head + text)
}

export function request(method, path) {
  return Buffer.from(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
}
