import type { IncomingMessage } from 'node:http'
import { invalid, KvError } from '../../errors/kv-error.js'
import { SMALL_BODY_BYTES } from '../../limits.js'
import type { Work } from './admission.js'
import type { ArrivingBody } from './arriving-bodies.js'
import type { Flight } from './in-flight.js'

/** Who decides whether there is room for a long body. */
export interface BodyRoom {
  /** It has another piece, and may be refused for it. */
  arrived(body: BodyReader): void
  /** Nothing more of it will come. */
  gone(body: BodyReader): void
  refusal(): Error
}

export type BodyDone = (error: Error | null, body?: Buffer) => void

interface Reading {
  readonly message: IncomingMessage
  readonly bytesMax: number
  readonly work: Work
  readonly flight: Flight
  readonly room: BodyRoom
  readonly done: BodyDone
}

/** Pieces of fewer bytes than this on average are put together: each costs some 250 bytes beside its own. */
const PIECE_BYTES_MIN = 4096
const PIECES_AT_A_TIME = 256

/** Reads one body into memory. Each byte counts from its arrival until the flight ends. */
export class BodyReader implements ArrivingBody {
  readonly #reading: Reading
  #pieces: Buffer[] = []
  /** Of `#pieces`: those from here on have not been put together. */
  #loose = 0
  #looseBytes = 0
  #bytes = 0

  constructor(reading: Reading) {
    this.#reading = reading
  }

  start(): void {
    const { message, bytesMax } = this.#reading
    if (Number(message.headers['content-length'] ?? 0) > bytesMax) this.#finish(bodyTooLarge(bytesMax))
    else if (message.destroyed)
      this.#onClose() // Its client went before anybody listened.
    else message.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose).resume()
  }

  get work(): Work {
    return this.#reading.work
  }
  get heldBytes(): number {
    return this.#bytes
  }

  refuse(): void {
    this.#finish(this.#reading.room.refusal())
  }

  readonly #onData = (piece: Buffer): void => {
    const { bytesMax, flight, room } = this.#reading
    this.#bytes += piece.length
    if (this.#bytes > bytesMax) {
      this.#finish(bodyTooLarge(bytesMax))
      return
    }
    this.#keep(piece)
    flight.hold(piece.length)
    if (this.#bytes > SMALL_BODY_BYTES) room.arrived(this)
  }

  #keep(piece: Buffer): void {
    this.#pieces.push(piece)
    this.#looseBytes += piece.length
    const count = this.#pieces.length - this.#loose
    if (count < PIECES_AT_A_TIME) return
    if (this.#looseBytes < count * PIECE_BYTES_MIN)
      this.#pieces.push(Buffer.concat(this.#pieces.splice(this.#loose), this.#looseBytes))
    this.#loose = this.#pieces.length
    this.#looseBytes = 0
  }

  readonly #onEnd = (): void => {
    const [first] = this.#pieces
    // Over TLS a piece is a view of the buffer that the socket reads into, and would keep all of that in memory.
    const isWhole = first !== undefined && first.length === this.#bytes && first.length === first.buffer.byteLength
    const body = isWhole ? first : Buffer.concat(this.#pieces, this.#bytes)
    this.#reading.flight.received()
    this.#finish(null, body)
  }

  readonly #onClose = (): void => this.#finish(invalid('body', 'the connection broke'))

  #finish(error: Error | null, body?: Buffer): void {
    const { message, flight, room, done } = this.#reading
    message.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose)
    this.#pieces = []
    if (this.#bytes > SMALL_BODY_BYTES) room.gone(this)
    if (error !== null) {
      flight.end()
      message.resume() // The rest is thrown away.
    }
    done(error, body)
  }
}

/** @param limit in bytes. */
function bodyTooLarge(limit: number): KvError<'payload_too_large'> {
  return new KvError('payload_too_large', `the body has over ${limit} bytes`, {
    field: 'body',
    limit,
  })
}
