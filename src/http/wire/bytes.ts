import { invalid } from '../../errors/kv-error.js'

/** Bytes in a request: UTF-8 text or `{"base64"}` in JSON; `bin` or `str` in MessagePack. */
export type WireBytes = string | Uint8Array | { readonly base64: string }

export function isWireBytes(value: unknown): value is WireBytes {
  if (typeof value === 'string' || value instanceof Uint8Array) return true
  if (typeof value !== 'object' || value === null) return false
  const names = Object.keys(value)
  return names.length === 1 && names[0] === 'base64' && typeof (value as { base64: unknown }).base64 === 'string'
}

/** @throws KvError `invalid_argument`: text with half a surrogate pair, or base64 that is not standard and padded. */
export function toBytes(value: WireBytes, field: string): Uint8Array {
  if (value instanceof Uint8Array) return value
  if (typeof value === 'string') {
    if (value.isWellFormed()) return Buffer.from(value, 'utf8')
    throw invalid(field, `${field} holds half a surrogate pair: send its bytes as {"base64"}`)
  }
  const bytes = Buffer.from(value.base64, 'base64')
  if (bytes.toString('base64') === value.base64) return bytes
  throw invalid(field, `${field} is not base64 of the standard alphabet with padding`)
}
