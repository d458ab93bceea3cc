import { Packr } from 'msgpackr'
import { camelCase, snakeCase } from '../../bytes/field-names.js'
import type { Shape } from './answer-shape.js'
import type { HttpAnswer } from './http-answer.js'
import { unexpectedAnswer } from './server-error.js'

/** MessagePack keeps bytes as they are. `int64AsType` turns the server's uint 64 into numbers. */
const packr = new Packr({ useRecords: false, moreTypes: false, int64AsType: 'number', copyBuffers: true })

export const MSGPACK = 'application/msgpack'

export function encodeMessage(message: object): Uint8Array {
  return packr.pack(renamed(message, snakeCase))
}

export function decodeMessage(bytes: Uint8Array, contentType: string | null): unknown {
  const isJson = contentType !== null && /^application\/(.*\+)?json\b/i.test(contentType)
  const message: unknown = isJson ? JSON.parse(new TextDecoder().decode(bytes)) : packr.unpack(bytes)
  return renamed(message, camelCase)
}

/** Decodes the body of a success. @throws ServerError when it does not have the expected shape. */
export function messageOf<T>({ status, headers, body }: HttpAnswer, shape: Shape): T {
  let message: unknown
  try {
    message = decodeMessage(body, headers.get('content-type'))
  } catch {
    throw unexpectedAnswer(status, `HTTP ${status} with a body that cannot be read`)
  }
  if (shape(message)) return message as T
  throw unexpectedAnswer(status, `HTTP ${status} with a body that is no answer to the request`)
}

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
  if (Array.isArray(value)) return value.map((item) => renamed(item, rename))
  const named: Record<string, unknown> = {}
  for (const [name, field] of Object.entries(value))
    if (field !== undefined) named[rename(name)] = renamed(field, rename)
  return named
}
