import type { ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { FastifyReply } from 'fastify'
import { sleep } from '../../event-loop/sleep.js'
import { LONG_ANSWER_BYTES } from '../../limits.js'
import { type AnswerBudget, type AnswerLease, CROWDED_MS } from '../../store/answer-budget.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import { whenInputEnds } from './answer-end.js'
import type { Heartbeats } from './heartbeats.js'

export type FeedFormat = 'events' | 'ndjson'

/** A client that does not take the last event of a stream is cut off after this time. */
const LINGER_MS = 1000
const PROBES_MS = [0, 100, 1000]
/** Sent first: how long a browser waits before it reconnects. */
const RETRY = 'retry: 1000\n\n'
/** Frames begin with their length, and have no content here. */
const HEARTBEAT = { events: Buffer.from(':\n\n'), ndjson: Buffer.from('\n'), frames: Buffer.alloc(4) } as const

export interface StreamOptions {
  readonly format: FeedFormat | 'frames'
  /** Counts bytes that the client has not taken yet, once they are many. */
  readonly budget: AnswerBudget
  readonly caller: string | undefined
  /** A client that takes nothing for this time is cut off. */
  readonly stalledMsMax: number
  /** Absent: the source of the events sends heartbeats itself. */
  readonly heartbeats?: Heartbeats | undefined
}

/**
 * An answer without a fixed end: server-sent events, lines of JSON, or frames with their lengths. The writer sees when the client has not taken what was
 * sent, and must wait then; nothing is dropped or queued beyond that.
 */
export class EventStream {
  readonly #raw: ServerResponse
  /** Kept, because Node removes it from the answer at its end. A request by `inject` has none, one of HTTP/2 none of its own. */
  readonly #socket: Socket | undefined
  readonly #options: StreamOptions
  #lease: AnswerLease | undefined
  #isFull = false
  #isOver = false
  #whenTaken: (() => void) | undefined
  #forgetInput: (() => void) | undefined

  /** Sends the head of the answer. */
  constructor(reply: FastifyReply, options: StreamOptions) {
    this.#options = options
    this.#raw = reply.raw
    if (reply.raw.socket instanceof Socket) this.#socket = reply.raw.socket
    reply.hijack()
    if (this.#raw.destroyed) {
      this.#isOver = true
      return
    }
    this.#raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      'content-type': CONTENT_TYPE[options.format],
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    })
    if (reply.request.method === 'HEAD') {
      this.#isOver = true
      this.#raw.end()
      return
    }
    if (options.format === 'events') this.write(RETRY)
    else this.#raw.flushHeaders()
    options.heartbeats?.add(this)
    this.#raw.once('close', this.#closed)
    // The source of lines has heartbeats of its own.
    if (options.format !== 'ndjson') this.#forgetInput = whenInputEnds(this.#socket, this.#probe)
  }

  /** Whether nothing can be written any more. */
  get isOver(): boolean {
    return this.#isOver
  }
  /** Whether the client has not taken what was written. */
  get isFull(): boolean {
    return this.#isFull
  }

  /** @returns whether the client can take more at once. */
  write(piece: string | Uint8Array): boolean {
    if (this.#isOver) return false
    this.#options.heartbeats?.moved(this)
    // Without this node:http collects writes and sends them at the end of the turn: a slice that wrote to thousands of streams
    // would be followed by all of their system calls.
    this.#socket?.cork()
    const isTaken = this.#raw.write(piece)
    this.#socket?.uncork()
    if (isTaken) return true
    if (this.#isFull) return false
    this.#isFull = true
    const bytes = this.#raw.writableLength
    if (bytes >= LONG_ANSWER_BYTES) {
      this.#lease = this.#options.budget.lease(this.#options.caller)
      this.#lease.hold(bytes)
    }
    this.#raw.setTimeout(this.#options.stalledMsMax) // Node then destroys the connection.
    this.#raw.once('drain', this.#onDrain)
    return false
  }

  /**
   * Calls `then` once: when the client has taken what was written, or the stream is over; now if that is so already. One caller
   * at a time.
   */
  whenTaken(then: () => void): void {
    if (this.#isFull && !this.#isOver) this.#whenTaken = then
    else then()
  }

  /** Waits until the client has taken what was written, and the shared budget has room for more. */
  async hasRoom(): Promise<void> {
    await new Promise<void>((taken) => this.whenTaken(taken))
    while (!this.#isOver && this.#options.budget.isCrowded) await sleep(CROWDED_MS)
  }

  /** Shows the client, proxies and the system that the connection is in use. */
  beat(): void {
    if (!this.#isFull) this.write(HEARTBEAT[this.#options.format])
  }

  /** The client has ended its side. If it has gone, the system answers the first write with a reset, and the next one fails. */
  readonly #probe = (): void => {
    for (const ms of PROBES_MS) setTimeout(() => this.beat(), ms).unref()
  }

  /** @param last an event with the reason. The connection then closes, unless it is one of HTTP/2. */
  end(last?: string): void {
    if (this.#isOver) return
    this.#closed()
    const raw = this.#raw
    const socket = this.#socket
    if (last === undefined || (socket === undefined && raw.req.httpVersionMajor < 2)) return void raw.end(last)
    raw.setTimeout(LINGER_MS)
    raw.end(last, () => socket?.destroySoon())
  }

  readonly #onDrain = (): void => {
    this.#isFull = false
    this.#raw.setTimeout(0)
    this.#release()
  }

  readonly #closed = (): void => {
    this.#isOver = true
    this.#forgetInput?.()
    this.#options.heartbeats?.delete(this)
    this.#release()
  }

  #release(): void {
    this.#lease?.end()
    this.#lease = undefined
    const then = this.#whenTaken
    this.#whenTaken = undefined
    then?.()
  }
}
