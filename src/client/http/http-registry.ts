import type { GivenRange } from '../../percolator/given-range.js'
import { BYTES, listOf, optional, record, type Shape, TEXT } from './answer-shape.js'
import { encodeMessage, MSGPACK, messageOf } from './http-message.js'
import type { HttpRequest, HttpTransport } from './http-transport.js'

export interface WireRange {
  readonly prefix?: Uint8Array | undefined
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}

export const WIRE_RANGE = { prefix: optional(BYTES), start: optional(BYTES), end: optional(BYTES) }

export function rangeOfWire({ prefix, start, end }: WireRange): GivenRange {
  return prefix === undefined ? { start, end } : { prefix }
}

/** Servers without pages answer all entries at once, and refuse `limit`: so only later pages send it. */
const PAGE_LIMIT = 1000

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

  /** Reads all pages. @param field the field with the entries of a page. */
  async list<T>(field: string, entry: Shape, prefix?: string): Promise<T[]> {
    const all: T[] = []
    const shape = record({ [field]: listOf(entry), cursor: optional(TEXT) })
    const selected = prefix === undefined ? '' : `prefix=${encodeURIComponent(prefix)}`
    for (let query = selected; ; ) {
      const path = query === '' ? this.path : `${this.path}?${query}`
      const { message } = await this.send<Record<string, unknown>>('GET', path, shape)
      for (const item of message[field] as readonly T[]) all.push(item)
      const { cursor } = message
      if (cursor === undefined) return all
      query = `limit=${PAGE_LIMIT}&cursor=${encodeURIComponent(String(cursor))}`
    }
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
