import { invalid, KvError } from '../errors/kv-error.js'
import { isReserved } from './reserved-keys.js'

/** @throws KvError `invalid_argument` when empty or reserved, `payload_too_large` over the limit. */
export function requireKey(key: Uint8Array, field: string, keyBytesMax: number): void {
  if (key.length === 0) throw invalid(field, `${field} is empty: keys have 1 to ${keyBytesMax} bytes`)
  if (key.length > keyBytesMax) throw tooLarge(field, key.length, keyBytesMax)
  if (isReserved(key))
    throw invalid(field, `${field} begins with the bytes 00 00 and perkv/, which are reserved for the server`)
}

export function requireValue(value: Uint8Array, field: string, valueBytesMax: number): void {
  if (value.length > valueBytesMax) throw tooLarge(field, value.length, valueBytesMax)
}

export function tooLarge(field: string, bytes: number, limit: number): KvError<'payload_too_large'> {
  return new KvError('payload_too_large', `${field} has ${bytes} bytes, over the limit of ${limit}`, { field, limit })
}
