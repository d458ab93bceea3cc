import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http'
import { expect } from 'vitest'
import { expectEvent } from './described.js'
import type { Headers, Json, TestServer } from './support.js'

export interface Event {
  readonly event: string
  readonly data: Json
  readonly id: string | undefined
}

const EVENTS: Headers = { accept: 'text/event-stream' }
export const NDJSON: Headers = { accept: 'application/x-ndjson' }

/** The answer to a request over the network, read as it comes. */
export class Stream {
  #text = ''
  #isOver = false
  #wake = (): void => {}
  readonly events: Event[] = []
  /** How many of the events `next` has returned. */
  #at = 0
  /** The first line of a stream of server-sent events. */
  retry: string | undefined

  private constructor(
    readonly sent: ClientRequest,
    readonly answer: IncomingMessage,
    readonly url: string,
    readonly server: TestServer,
  ) {
    answer.setEncoding('utf8')
    answer.on('data', (text: string) => {
      this.#text += text
      this.#parse()
      this.#wake()
    })
    answer.on('close', () => {
      this.#isOver = true
      this.#wake()
    })
    answer.on('error', () => {}) // It is destroyed.
  }

  /** Fulfilled once the head of the answer is there. */
  static open(server: TestServer, url: string, headers: Headers = EVENTS): Promise<Stream> {
    return server.listen().then(
      (port) =>
        new Promise((resolve, reject) => {
          const sent = request({ port, host: '127.0.0.1', path: url, headers, agent: false }, (answer) =>
            resolve(new Stream(sent, answer, url, server)),
          )
          sent.on('error', reject)
          sent.end()
        }),
    )
  }

  get status(): number {
    return this.answer.statusCode ?? 0
  }
  get headers(): IncomingHttpHeaders {
    return this.answer.headers
  }
  /** Bytes that are no whole event. */
  get rest(): string {
    return this.#text
  }

  #parse(): void {
    const isLines = this.headers['content-type']?.includes('ndjson') === true
    const end = isLines ? '\n' : '\n\n'
    if (this.status !== 200) return
    for (let at = this.#text.indexOf(end); at !== -1; at = this.#text.indexOf(end)) {
      const block = this.#text.slice(0, at)
      this.#text = this.#text.slice(at + end.length)
      if (isLines) {
        const { type, ...data } = JSON.parse(block) as Json
        this.#add({ event: String(type), data, id: undefined })
      } else this.#addBlock(block)
    }
  }

  #addBlock(block: string): void {
    const fields = new Map(
      block.split('\n').map((line) => {
        const [name = '', ...value] = line.split(': ')
        return [name, value.join(': ')]
      }),
    )
    const data = fields.get('data')
    if (data !== undefined)
      this.#add({ event: fields.get('event') ?? 'message', data: JSON.parse(data) as Json, id: fields.get('id') })
    else this.retry ??= fields.get('retry')
  }

  #add(event: Event): void {
    expectEvent(this.server.app, this.url, event)
    this.events.push(event)
  }

  /** @returns the next event; undefined when the stream has ended. */
  async next(): Promise<Event | undefined> {
    while (this.#at === this.events.length && !this.#isOver) await new Promise<void>((wake) => (this.#wake = wake))
    return this.events[this.#at++]
  }

  /** The next event, which must be one of these. */
  async expect(name: string, data: Json = {}): Promise<Event> {
    const event = await this.next()
    expect(event, 'the stream has ended').toBeDefined()
    expect(event).toMatchObject({ event: name, data })
    return event as Event
  }

  /** The next event of this name. */
  async until(name: string): Promise<Event> {
    for (;;) {
      const event = await this.next()
      if (event === undefined) throw new Error(`the stream ended before a ${name}`)
      if (event.event === name) return event
    }
  }

  /** All events up to the end of the stream. */
  async all(): Promise<Event[]> {
    while ((await this.next()) !== undefined);
    return this.events
  }

  /** @returns the body of an answer that is no stream. */
  async problem(): Promise<Json> {
    await this.all()
    return JSON.parse(this.#text) as Json
  }

  close(): void {
    this.sent.destroy()
  }
}
