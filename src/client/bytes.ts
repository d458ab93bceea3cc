import { printKey } from '../errors/print-key.js'
import { oneOf } from './options.js'

/** A key or a value. A string stands for its UTF-8 bytes. */
export type Bytes = string | Uint8Array

/** The type in which keys and values are returned. */
export type As = 'text' | 'bytes'
export type Read<A extends As> = A extends 'bytes' ? Uint8Array : string

export const AS = oneOf<As>('text', 'bytes')

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * @returns a copy, so that the caller cannot change a buffered write through its own array.
 * @throws TypeError for text that is not well formed, and for a value that is neither text nor bytes.
 */
export function toBytes(given: Bytes, what: string): Uint8Array {
  if (given instanceof Uint8Array) return new Uint8Array(given)
  if (typeof given !== 'string') throw new TypeError(`${what} must be a string or a Uint8Array, not ${typeof given}`)
  if (!given.isWellFormed()) throw new TypeError(`${what} holds half a surrogate pair: give it as a Uint8Array`)
  return encoder.encode(given)
}

export function toKey(key: Bytes): Uint8Array {
  return toBytes(key, 'the key')
}

export function toKeys(keys: readonly Bytes[]): Uint8Array[] {
  if (!Array.isArray(keys)) throw new TypeError('keys must be an array')
  return keys.map(toKey)
}

export function toValue(value: Bytes): Uint8Array {
  return toBytes(value, 'the value')
}

/**
 * Returns the value of `key` as text, or as a copy of the bytes: the original may be a buffered write, or belong to the cache of
 * a database in this process.
 * @throws TypeError when text is wanted and the value is not UTF-8.
 */
export function readValue<A extends As>(value: Uint8Array, as: A, key: Uint8Array): Read<A> {
  return read(value, as, () => `the value of ${printKey(key)}`)
}

/** As `readValue`, for a key. A scan keeps the original as well, because its next page begins after it. */
export function readKey<A extends As>(key: Uint8Array, as: A): Read<A> {
  return read(key, as, () => `the key ${printKey(key)}`)
}

function read<A extends As>(bytes: Uint8Array, as: A, name: () => string): Read<A> {
  if (as === 'bytes') return new Uint8Array(bytes) as Read<A>
  try {
    return decoder.decode(bytes) as Read<A>
  } catch (cause) {
    throw new TypeError(`${name()} is not UTF-8 text: read it with { as: 'bytes' }`, { cause })
  }
}
