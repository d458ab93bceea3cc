import type { GivenRange } from '../../percolator/given-range.js'
import { BYTES, optional, type Shape } from './answer-shape.js'
import { encodeMessage, MSGPACK, messageOf } from './http-message.js'
import type { HttpRequest, HttpTransport } from './http-transport.js'

/** A range as the server shows it among the fields of what is registered for it. */
export interface WireRange {
  readonly prefix?: Uint8Array | undefined
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}

export const WIRE_RANGE = { prefix: optional(BYTES), start: optional(BYTES), end: optional(BYTES) }

export function rangeOfWire({ prefix, start, end }: WireRange): GivenRange {
  return prefix === undefined ? { start, end } : { prefix }
}

/** Calls about what is registered under names: observers, consumers. */
export class HttpRegistry {
  readonly #transport: HttpTransport
  /** Path of the list. */
  readonly path: string

  constructor(transport: HttpTransport, path: string) {
    this.#transport = transport
    this.path = path
  }

  pathOf(name: string): string {
    return `${this.path}/${encodeURIComponent(name)}`
  }

  async send<T>(
    method: HttpRequest['method'],
    path: string,
    shape: Shape,
    message?: object,
    rest: Partial<HttpRequest> = {},
  ): Promise<{ readonly status: number; readonly message: T }> {
    const content = message && { headers: { 'content-type': MSGPACK }, body: encodeMessage(message) }
    const answer = await this.#transport.send({ method, path, ...content, ...rest })
    return { status: answer.status, message: messageOf<T>(answer, shape) }
  }
}
