import { printKey } from '../errors/print-key.js'
import { oneOf } from './options.js'

/** A key or a value: bytes, or text, which stands for its UTF-8. */
export type Bytes = string | Uint8Array

/** How keys and values are given back. */
export type As = 'text' | 'bytes'
export type Read<A extends As> = A extends 'bytes' ? Uint8Array : string

export const AS = oneOf<As>('text', 'bytes')

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * @returns bytes of its own: what the caller does to the given ones later changes no buffered write.
 * @throws TypeError for text that has no UTF-8, and for what is neither text nor bytes.
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

/** @throws TypeError also for what is no array. */
export function toKeys(keys: readonly Bytes[]): Uint8Array[] {
  if (!Array.isArray(keys)) throw new TypeError('keys must be an array')
  return keys.map(toKey)
}

export function toValue(value: Bytes): Uint8Array {
  return toBytes(value, 'the value')
}

/**
 * The value of `key` as the caller wants it: bytes of the caller's own, because these may be a buffered write, or stand in
 * the cache of a database in this process. @throws TypeError when it is wanted as text and is none.
 */
export function readValue<A extends As>(value: Uint8Array, as: A, key: Uint8Array): Read<A> {
  return read(value, as, () => `the value of ${printKey(key)}`)
}

/** The same for a key: the next page of a scan begins after these bytes. @throws TypeError as `readValue`. */
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
