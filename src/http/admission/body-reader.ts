import type { IncomingMessage } from 'node:http'
import { invalid, KvError } from '../../errors/kv-error.js'
import { SMALL_BODY_BYTES } from '../../limits.js'
import type { Work } from './admission.js'
import type { ArrivingBody } from './arriving-bodies.js'
import type { Flight } from './in-flight.js'

export interface BodyRoom {
  /** Called after each piece of a long body; may call `body.refuse()`. */
  arrived(body: BodyReader): void
  /** Called when a long body is complete, refused or broken off. */
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

/** Pieces shorter than this on average are joined, because each costs some 250 bytes of memory besides its content. */
const PIECE_BYTES_MIN = 4096
const PIECES_AT_A_TIME = 256

/** Reads one body into memory. Each byte counts for admission from its arrival until the flight ends. */
export class BodyReader implements ArrivingBody {
  readonly #reading: Reading
  #pieces: Buffer[] = []
  /** Index in `#pieces` of the first piece that has not been joined or left as it is. */
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
      this.#onClose() // The client hung up before reading began.
    else {
      message.askForBody?.()
      message.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose).resume()
    }
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
    // Over TLS a piece is a view of the socket's read buffer. Keeping the view would keep the whole buffer in memory.
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
      message.resume() // Discards the rest, so that the connection stays usable.
    }
    done(error, body)
  }
}

function bodyTooLarge(limit: number): KvError<'payload_too_large'> {
  return new KvError('payload_too_large', `the body has over ${limit} bytes`, {
    field: 'body',
    limit,
  })
}
