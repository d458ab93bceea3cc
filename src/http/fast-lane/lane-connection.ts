import type { Socket } from 'node:net'
import type { Grant } from '../../access/grant.js'
import { type Limits, LONG_ANSWER_BYTES } from '../../limits.js'
import type { AnswerBudget } from '../../store/answer-budget.js'
import { HOLD_BACK_MS } from '../admission/traffic.js'
import type { BrowserGuard } from '../connections/browser-safety.js'
import type { Ask } from './asked.js'
import { Call, type Caller } from './call.js'
import type { HeaderBlock } from './header-block.js'
import { type FastRequest, RequestReader } from './request-reader.js'

/** The server, as a connection of the fast lane needs it. */
export interface Lane {
  readonly limits: Limits
  readonly answers: AnswerBudget
  readonly browserGuard: BrowserGuard | undefined
  readonly ask: Ask
  /** @returns undefined for headers that node:http has to judge. */
  grantOf(headers: HeaderBlock): Grant | undefined
  /** Runs a call, now or in a later turn of the event loop. */
  start(call: Call): void
  /** The end of a head: the lines that depend on the second and on the connection. */
  lastLines(isClosing: boolean): string
  /** The first request of a connection has come. */
  used(socket: Socket): void
  /** The client has ended its side in the middle of a request. */
  brokenOff(socket: Socket): void
  /** The connection is no longer in the fast lane: it has closed, or is given to node:http. */
  gone(connection: LaneConnection): void
  serveByNode(socket: Socket): void
}

/** No more requests are read from a connection while this many wait for their answers. */
const CALLS_MAX = 64
const NOTHING = Buffer.alloc(0)

/**
 * A connection of which all requests so far were in the subset of the fast lane. With the first other one it is given to
 * node:http, when the requests before are answered.
 */
export class LaneConnection implements Caller {
  readonly #socket: Socket
  readonly #lane: Lane
  readonly #reader: RequestReader
  /** The requests without an answer, oldest first. */
  #first: Call | undefined
  #last: Call | undefined
  #calls = 0
  /** The beginning of a request whose end has not arrived. */
  #rest: Buffer | undefined
  /** The bytes from the first request on that is node:http's. */
  #foreign: Buffer | undefined
  #isUsed = false
  #isReading = false
  #isPaused = false
  #hasEnded = false
  #isClosing = false
  #hasLeft = false
  #heldBack: NodeJS.Timeout | undefined
  #longAnswers = 0
  #ticks = 0

  constructor(socket: Socket, lane: Lane) {
    this.#socket = socket
    this.#lane = lane
    this.#reader = new RequestReader(lane.limits, lane.browserGuard)
    socket.on('data', this.#onData).on('end', this.#onEnd).on('drain', this.#onDrain)
    socket.on('timeout', this.#onTimeout).on('close', this.#onClose).on('error', ignore)
  }

  // ---- Requests

  readonly #onData = (piece: Buffer): void => {
    this.#ticks = 0
    const isSecondPiece = this.#rest !== undefined
    const bytes = this.#rest === undefined ? piece : Buffer.concat([this.#rest, piece])
    this.#rest = undefined
    this.#isReading = true
    const text = bytes.toString('latin1')
    let at = 0
    while (at < bytes.length) {
      const request = this.#reader.read(text, at)
      if (request === 'partial' && !(isSecondPiece && at === 0)) {
        this.#rest = Buffer.from(bytes.subarray(at)) // A view would keep all in memory that arrived with it.
        break
      }
      // A request in three pieces is node:http's too: joining many small pieces would cost the square of their number.
      if (typeof request === 'string' || !this.#begin(request, bytes)) {
        this.#foreign = Buffer.from(bytes.subarray(at))
        break
      }
      at = request.end
    }
    this.#isReading = false
    this.answered()
  }

  #begin(request: FastRequest, bytes: Buffer): boolean {
    const { headers, bodyAt, end } = request
    const grant = this.#lane.grantOf(headers)
    const asked = grant && this.#lane.ask(request, bytes, grant)
    if (asked === undefined || grant === undefined) return false
    if (!this.#isUsed) {
      this.#isUsed = true
      this.#lane.used(this.#socket)
    }
    const call = new Call(asked, headers, grant, end - bodyAt, this)
    if (this.#first === undefined) this.#first = call
    else if (this.#last !== undefined) this.#last.next = call
    this.#last = call
    this.#calls++
    this.#lane.start(call)
    return true
  }

  // ---- Answers

  /** Sends the answers that are there, up to the first one that is not, in one write. */
  answered(): void {
    if (this.#isReading || this.#hasLeft) return
    let text = ''
    for (let call = this.#first; call?.answer !== undefined; call = this.#first) {
      const { head, body } = call.answer
      this.#first = call.next
      this.#calls--
      text += head + this.#lane.lastLines(this.#isClosing && this.#first === undefined)
      if (typeof body === 'string') text += body
      else {
        this.#sendLong(text, body)
        text = ''
      }
    }
    if (text !== '') this.#send(text)
    if (this.#first === undefined) this.#settle()
    this.#pace()
  }

  #send(text: string): void {
    this.#ticks = 0
    this.#socket.write(text, 'latin1')
  }

  /** Counts a long body as memory until the client has received it. A client that receives nothing is cut off. */
  #sendLong(head: string, body: Buffer): void {
    const { answers, limits } = this.#lane
    const lease = answers.lease()
    if (body.length >= LONG_ANSWER_BYTES) lease.hold(body.length)
    if (++this.#longAnswers === 1) this.#socket.setTimeout(limits.stalledMsMax)
    this.#socket.cork()
    this.#send(head)
    this.#socket.write(body, () => {
      lease.end()
      if (--this.#longAnswers === 0 && !this.#hasLeft) this.#socket.setTimeout(0)
    })
    this.#socket.uncork()
  }

  /** All requests so far are answered. */
  #settle(): void {
    if (this.#foreign !== undefined) this.#leave(this.#foreign)
    else if (this.#isClosing) this.#socket.destroySoon()
    else if (this.#hasEnded && this.#rest !== undefined) this.#lane.brokenOff(this.#socket)
    else if (this.#hasEnded) this.#socket.end()
  }

  #pace(): void {
    if (this.#hasLeft) return
    const { writableNeedDrain } = this.#socket
    const mustWait =
      this.#foreign !== undefined ||
      this.#calls >= CALLS_MAX ||
      writableNeedDrain ||
      this.#heldBack !== undefined ||
      this.#isClosing
    if (mustWait === this.#isPaused) return
    this.#isPaused = mustWait
    if (mustWait) this.#socket.pause()
    else this.#socket.resume()
  }

  /** Refusing requests is work too, so no more of them are read for a while. */
  shed(): void {
    this.#heldBack ??= setTimeout(() => {
      this.#heldBack = undefined
      this.#pace()
    }, HOLD_BACK_MS).unref()
  }

  // ---- The end

  #leave(bytes: Buffer): void {
    const socket = this.#socket
    this.#hasLeft = true
    clearTimeout(this.#heldBack)
    socket.off('data', this.#onData).off('end', this.#onEnd).off('drain', this.#onDrain)
    socket.off('timeout', this.#onTimeout).off('close', this.#onClose).off('error', ignore)
    this.#lane.gone(this)
    if (socket.destroyed) return
    socket.setTimeout(0)
    socket.pause() // Flowing, it would emit the bytes at once, before node:http listens.
    if (bytes.length > 0) socket.unshift(bytes)
    this.#lane.serveByNode(socket)
    socket.resume()
  }

  /**
   * Called regularly. Node's time-outs hold for requests that arrive slowly: their connections are given to node:http.
   * @param idleTicks after so many calls without anything sent or received, the connection is closed.
   */
  tick(idleTicks: number): void {
    if (++this.#ticks < 2 || this.#foreign !== undefined) return
    if (this.#rest !== undefined || !this.#isUsed) {
      this.#foreign = this.#rest ?? NOTHING
      this.#rest = undefined
      this.answered()
    } else if (this.#ticks > idleTicks && this.#calls === 0 && this.#longAnswers === 0) this.#socket.destroy()
  }

  /** Sends what is asked for, then closes the connection. */
  close(): void {
    if (this.#calls === 0) this.#socket.destroy()
    this.#isClosing = true
    this.#pace()
  }

  destroy(): void {
    this.#socket.destroy()
  }

  readonly #onEnd = (): void => {
    this.#hasEnded = true
    this.answered()
  }

  readonly #onDrain = (): void => {
    this.#ticks = 0
    this.#pace()
  }

  readonly #onTimeout = (): void => {
    if (this.#socket.writableLength > 0) this.#socket.destroy()
  }

  readonly #onClose = (): void => {
    clearTimeout(this.#heldBack)
    this.#hasLeft = true
    for (let call = this.#first; call !== undefined; call = call.next) call.hangUp()
    this.#lane.gone(this)
  }
}

function ignore(): void {}
