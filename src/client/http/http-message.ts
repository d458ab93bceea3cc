import { Packr } from 'msgpackr'
import { camelCase, snakeCase } from '../../bytes/field-names.js'

/** Both ways MessagePack: bytes travel as they are, and a uint 64 of the server is a number again. */
const packr = new Packr({ useRecords: false, moreTypes: false, int64AsType: 'number', copyBuffers: true })

export const MSGPACK = 'application/msgpack'

/** camelCase names become snake_case; fields that are undefined are left out. */
export function encodeMessage(message: object): Uint8Array {
  return packr.pack(renamed(message, snakeCase))
}

/** @param contentType JSON where it says so; anything else is taken as MessagePack. @throws when it is neither. */
export function decodeMessage(bytes: Uint8Array, contentType: string | null): unknown {
  const isJson = contentType !== null && /^application\/(.*\+)?json\b/i.test(contentType)
  const message: unknown = isJson ? JSON.parse(new TextDecoder().decode(bytes)) : packr.unpack(bytes)
  return renamed(message, camelCase)
}

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
  if (Array.isArray(value)) return value.map((item) => renamed(item, rename))
  const named: Record<string, unknown> = {}
  for (const [name, field] of Object.entries(value))
    if (field !== undefined) named[rename(name)] = renamed(field, rename)
  return named
}
