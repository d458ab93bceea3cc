import type { Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import type { Grant } from '../../access/grant.js'
import { type Limits, LONG_ANSWER_BYTES } from '../../limits.js'
import type { AnswerBudget, AnswerLease } from '../../store/answer-budget.js'
import { HOLD_BACK_MS } from '../admission/traffic.js'
import type { BrowserGuard } from '../connections/browser-safety.js'
import { PREFACE } from '../connections/http2.js'
import type { LetIn } from '../connections/let-in.js'
import { LongAnswer } from '../wire/long-answer.js'
import type { Ask } from './asked.js'
import { Call, type Caller } from './call.js'
import type { HeaderBlock } from './header-block.js'
import { type FastRequest, type Read, RequestReader } from './request-reader.js'

export interface Lane {
  /** Otherwise node:http handles every request. */
  readonly isOpen: boolean
  /** Over TLS the handshake says which connections have HTTP/2. */
  readonly looksForHttp2: boolean
  readonly limits: Limits
  readonly answers: AnswerBudget
  readonly browserGuard: BrowserGuard | undefined
  readonly ask: Ask
  readonly isTraced: boolean
  /** @returns undefined for headers that node:http must check. */
  grantOf(headers: HeaderBlock): Grant | undefined
  letIn(headers: HeaderBlock, grant: Grant): LetIn | undefined
  /** Runs a call, now or in a later turn of the event loop. */
  start(call: Call): void
  /** Called when a call has its answer. */
  answered(call: Call): void
  /** The lines of a head that depend on the time and on the connection. */
  lastLines(isClosing: boolean): string
  /** Called when the first bytes of a connection have come. */
  used(socket: Socket): void
  /** Called when the connection has left the fast lane: it has closed, or was handed to node:http. */
  gone(connection: LaneConnection): void
  serveByNode(socket: Socket): void
  serveHttp2(socket: Socket): void
}

/**
 * The state of the next request. `blocked`: it waits for running requests, because it or the running one is not a GET.
 * `partial`: a part of it has arrived. `outside`: node:http must handle it. `http2`: it is the preface of HTTP/2.
 */
type Next = 'ready' | 'blocked' | 'http2' | Exclude<Read, FastRequest>

/** No more requests are read from a connection while this many wait for their answers. */
const CALLS_MAX = 64
/** No more requests are read either while the bodies of unsent answers have this many bytes. */
const ANSWERS_BYTES_MAX = 64 * 1024
const NOTHING = Buffer.alloc(0)
/** Of the others the content says whether they write. */
const WRITING: ReadonlySet<FastRequest['kind']> = new Set(['put', 'delete', 'lease'])

/**
 * A connection whose requests so far were all in the subset of the fast lane. At the first other request it is handed to
 * node:http, after the answers to the requests before.
 */
export class LaneConnection implements Caller {
  readonly #socket: Socket
  readonly #lane: Lane
  readonly #reader: RequestReader
  /** The requests whose answers are not sent, oldest first. */
  #first: Call | undefined
  #last: Call | undefined
  #calls = 0
  /** Number of them without an answer. */
  #running = 0
  /** Bytes of the bodies of unsent answers. */
  #answerBytes = 0
  /** Received bytes, also as Latin-1. They are read up to `#at`. */
  #bytes: Buffer = NOTHING
  #text = ''
  #at = 0
  #next: Next = 'ready'
  #mayBeHttp2: boolean
  #life: 'unused' | 'used' | 'gone' = 'unused'
  #isReading = false
  #isClosing = false
  #heldBack: NodeJS.Timeout | undefined
  #longAnswers = 0
  /** The long answer that is being sent. Later answers wait. */
  #streamed: { readonly body: LongAnswer; readonly lease: AnswerLease | undefined } | undefined
  #ticks = 0

  constructor(socket: Socket, lane: Lane) {
    this.#socket = socket
    this.#lane = lane
    this.#reader = new RequestReader(lane.limits, lane.browserGuard)
    this.#mayBeHttp2 = lane.looksForHttp2
    socket.on('data', this.#onData).on('end', this.#onEnd).on('drain', this.#onDrain)
    socket.on('timeout', this.#onTimeout).on('close', this.#onClose).on('error', ignore)
  }

  get isTraced(): boolean {
    return this.#lane.isTraced
  }

  // ---- Requests

  readonly #onData = (piece: Buffer): void => {
    this.#ticks = 0
    if (this.#life === 'unused') {
      this.#life = 'used'
      this.#lane.used(this.#socket)
    }
    const isSecondPiece = this.#next === 'partial'
    this.#bytes = this.#isRead ? piece : Buffer.concat([this.#bytes.subarray(this.#at), piece])
    this.#text = this.#bytes.toString('latin1')
    this.#at = 0
    if (isSecondPiece) this.#next = 'ready'
    const hasBegun = !this.#mustWait && this.#read()
    // node:http handles a request in three pieces: joining many small pieces would cost the square of their number.
    if (isSecondPiece && this.#isPartial && !hasBegun && !this.#isInPreface) this.#handOver()
  }

  get #isRead(): boolean {
    return this.#at === this.#bytes.length
  }

  get #isPartial(): boolean {
    return this.#next === 'partial'
  }

  get #isInPreface(): boolean {
    return this.#mayBeHttp2 && PREFACE.startsWith(this.#text)
  }

  /** Alternately begins the requests that have arrived and sends the finished answers. @returns whether it began any. */
  #read(): boolean {
    let hasBegun = false
    do {
      this.#isReading = true
      while (!this.#isRead && this.#calls < CALLS_MAX && this.#answerBytes < ANSWERS_BYTES_MAX) {
        this.#next = this.#beginNext()
        if (this.#next !== 'ready') break
        hasBegun = true
      }
      this.#isReading = false
      this.#forget()
      this.#flush()
    } while (this.#mayRead)
    if (this.#isClosing && this.#isPartial) this.#handOver()
    return hasBegun
  }

  /** Whether more requests have arrived and may be begun. */
  get #mayRead(): boolean {
    return this.#next === 'ready' && !(this.#isRead || this.#mustWait || this.#life === 'gone')
  }

  /** Whether no request may be begun now. */
  get #mustWait(): boolean {
    return (
      this.#mustLeave ||
      this.#streamed !== undefined ||
      this.#calls >= CALLS_MAX ||
      this.#answerBytes >= ANSWERS_BYTES_MAX ||
      this.#socket.writableNeedDrain ||
      this.#heldBack !== undefined
    )
  }

  /** Whether another parser must read what comes next. */
  get #mustLeave(): boolean {
    return this.#next === 'outside' || this.#next === 'http2'
  }

  /** Drops the bytes that were read. */
  #forget(): void {
    if (this.#isRead) {
      this.#bytes = NOTHING
      this.#text = ''
      this.#at = 0
    } else if (this.#isPartial && this.#at > 0) {
      this.#bytes = Buffer.from(this.#bytes.subarray(this.#at))
      this.#text = ''
      this.#at = 0
    }
  }

  /** @returns `ready` when the next request was begun; otherwise nothing was done. */
  #beginNext(): Next {
    // A request that is not a GET runs alone, as if each request came after the answer to the one before (RFC 9112, section
    // 9.3.2).
    if (this.#running > 0 && this.#last?.asked.kind !== 'get') return 'blocked'
    const request = this.#lane.isOpen ? this.#reader.read(this.#text, this.#at) : 'outside'
    if (request === 'outside' && this.#mayBeHttp2) return this.#readPreface()
    if (typeof request !== 'object') return request
    return this.#running > 0 && request.kind !== 'get' ? 'blocked' : this.#begin(request)
  }

  #readPreface(): Next {
    if (this.#text.startsWith(PREFACE)) return 'http2'
    return this.#isInPreface ? 'partial' : 'outside'
  }

  #begin(request: FastRequest): Next {
    const { kind, headers, bodyAt, end } = request
    const grant = this.#lane.grantOf(headers)
    if (grant === undefined || (WRITING.has(kind) && !grant.mayWrite)) return 'outside'
    if (end > this.#bytes.length) return 'partial'
    const asked = this.#lane.ask(request, this.#bytes, grant)
    if (asked === undefined) return 'outside'
    const call = new Call(asked, headers, grant, this.#lane.letIn(headers, grant), end - bodyAt, this)
    if (this.#first === undefined) this.#first = call
    else if (this.#last !== undefined) this.#last.next = call
    this.#last = call
    this.#calls++
    this.#running++
    this.#at = end
    this.#mayBeHttp2 = false
    this.#lane.start(call)
    return 'ready'
  }

  // ---- Answers

  answered(call: Call): void {
    this.#running--
    if (this.#next === 'blocked') this.#next = 'ready'
    this.#lane.answered(call)
    const bytes = bodyBytes(call)
    this.#answerBytes += bytes
    if (bytes >= LONG_ANSWER_BYTES && this.#life !== 'gone') {
      call.lease = this.#lane.answers.lease(call.grant.identity)
      call.lease.hold(bytes)
    }
    if (this.#isReading || call !== this.#first) return
    this.#flush()
    if (this.#mayRead) this.#read()
  }

  /** Sends the finished answers, up to the first unfinished one, in one write. */
  #flush(): void {
    if (this.#life === 'gone' || this.#streamed !== undefined) return
    let text = ''
    for (let call = this.#first; call?.answer !== undefined && this.#streamed === undefined; call = this.#first) {
      const { head, body } = call.answer
      this.#first = call.next
      if (this.#first === undefined) this.#last = undefined // It would keep its answer in memory.
      this.#calls--
      this.#answerBytes -= bodyBytes(call)
      text += head + this.#lane.lastLines(this.#isLast)
      if (typeof body === 'string') text += `\r\n${body}`
      else {
        const { lease } = call
        if (body instanceof LongAnswer) this.#stream(text, body, lease)
        else this.#sendLong(`${text}\r\n`, body, lease)
        text = ''
      }
    }
    if (text !== '') this.#send(text)
    if (this.#first === undefined && this.#streamed === undefined) this.#allAnswered()
    this.#pace()
  }

  /** Whether the next answer is the last one of the connection. */
  get #isLast(): boolean {
    return this.#isClosing && this.#first === undefined && this.#isRead && !this.#mustLeave
  }

  #send(text: string): void {
    this.#ticks = 0
    this.#socket.write(text, 'latin1')
  }

  #sendLong(head: string, body: Buffer, lease: AnswerLease | undefined): void {
    this.#beginLong()
    this.#socket.cork()
    this.#send(head)
    this.#socket.write(body, () => this.#endLong(lease))
    this.#socket.uncork()
  }

  /** Sends an answer while it is encoded. Later answers wait. */
  #stream(head: string, body: LongAnswer, lease: AnswerLease | undefined): void {
    this.#streamed = { body, lease }
    this.#beginLong()
    this.#send(`${head}Transfer-Encoding: chunked\r\n\r\n`)
    pipeline(body, chunked, this.#socket, { end: false })
      .catch(() => this.#socket.destroy()) // The client has gone, or its answer cannot be completed.
      .finally(() => {
        this.#streamed = undefined
        this.#endLong(lease)
        this.#flush()
        this.#goOn()
      })
  }

  /** Cuts off a client that receives nothing of a long answer. */
  #beginLong(): void {
    if (++this.#longAnswers === 1) this.#socket.setTimeout(this.#lane.limits.stalledMsMax)
  }

  /** @param lease counted the answer until now. */
  #endLong(lease: AnswerLease | undefined): void {
    lease?.end()
    if (--this.#longAnswers === 0 && this.#life !== 'gone') this.#socket.setTimeout(0)
  }

  /** Called when every begun request is answered. */
  #allAnswered(): void {
    const { readableEnded } = this.#socket
    if (this.#mustLeave) this.#leave()
    else if (this.#isClosing && this.#isRead) this.#socket.destroySoon()
    else if (readableEnded && this.#isPartial) this.#leave()
    else if (readableEnded && this.#isRead) this.#socket.end()
  }

  #pace(): void {
    if (this.#life === 'gone') return
    const mustPause = this.#mustWait || this.#next === 'blocked' || this.#isClosing
    if (mustPause === this.#socket.isPaused()) return
    if (mustPause) this.#socket.pause()
    else this.#socket.resume()
  }

  /** Refusing requests is work too, so the connection is not read for a while. */
  shed(): void {
    this.#heldBack ??= setTimeout(() => {
      this.#heldBack = undefined
      this.#goOn()
    }, HOLD_BACK_MS).unref()
  }

  // ---- The end

  #handOver(): void {
    this.#next = 'outside'
    this.#flush()
  }

  #leave(): void {
    const socket = this.#socket
    if (this.#life === 'gone' || socket.destroyed) return
    // node:http destroys a connection with malformed bytes, and with it unsent answers.
    if (socket.writableLength > 0 && !socket.readableEnded)
      return void socket.write('', (error) => {
        if (!error) this.#leave()
      })
    const bytes = this.#bytes.subarray(this.#at)
    this.#life = 'gone'
    clearTimeout(this.#heldBack)
    // Not the listener for errors: an error may be on its way.
    socket.off('data', this.#onData).off('end', this.#onEnd).off('drain', this.#onDrain)
    socket.off('timeout', this.#onTimeout).off('close', this.#onClose)
    this.#lane.gone(this)
    if (!socket.writable) return
    socket.setTimeout(0)
    if (this.#next === 'http2') return void this.#leaveToHttp2(bytes)
    this.#lane.serveByNode(socket)
    // Not by `unshift`: that is an error after the end, which comes even while the socket is paused.
    if (bytes.length > 0) socket.emit('data', bytes)
    if (socket.readableEnded && socket.writable) socket.emit('end')
    socket.resume()
  }

  #leaveToHttp2(bytes: Buffer): void {
    const socket = this.#socket
    if (socket.readableEnded) return void socket.destroy()
    socket.pause()
    socket.unshift(bytes)
    this.#lane.serveHttp2(socket)
  }

  /**
   * Call at regular intervals. A connection with a request that arrives slowly is handed to node:http, whose time-outs apply. A
   * connection that a pool has opened in advance stays: otherwise node:http would handle all its later requests.
   * @param idleTicks the connection is closed after this many calls without anything sent or received.
   * @param unusedTicks the same for a connection that has never received anything.
   */
  tick(idleTicks: number, unusedTicks: number): void {
    if (++this.#ticks < 2) return
    const ticksMax = this.#life === 'unused' ? unusedTicks : idleTicks
    if (this.#isPartial) this.#handOver()
    else if (this.#ticks > ticksMax && this.#calls === 0 && this.#longAnswers === 0) this.#socket.destroy()
  }

  /** Sends the answers to begun requests, then closes the connection. */
  close(): void {
    this.#isClosing = true
    if (this.#isPartial) this.#handOver()
    else if (this.#calls === 0 && this.#streamed === undefined && this.#isRead) this.#socket.destroySoon()
    this.#pace()
  }

  destroy(): void {
    this.#socket.destroy()
  }

  readonly #onEnd = (): void => {
    this.#flush()
  }

  readonly #onDrain = (): void => {
    this.#ticks = 0
    this.#goOn()
  }

  #goOn(): void {
    this.#pace()
    if (this.#mayRead) this.#read()
  }

  readonly #onTimeout = (): void => {
    if (this.#socket.writableLength > 0) this.#socket.destroy()
  }

  readonly #onClose = (): void => {
    clearTimeout(this.#heldBack)
    this.#life = 'gone'
    for (let call = this.#first; call !== undefined; call = call.next) call.hangUp()
    // The pipeline of an answer over TLS does not end with its socket.
    this.#streamed?.body.destroy()
    this.#streamed?.lease?.end()
    this.#lane.gone(this)
  }
}

function ignore(): void {}

function bodyBytes({ answer }: Call): number {
  if (answer === undefined) return 0
  return answer.body instanceof LongAnswer ? answer.body.memoryBytes : answer.body.length
}

/** Encodes pieces like node:http, as chunks. */
async function* chunked(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  for await (const piece of pieces) yield Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, CRLF])
  yield LAST_CHUNK
}

const CRLF = Buffer.from('\r\n')
const LAST_CHUNK = Buffer.from('0\r\n\r\n')
