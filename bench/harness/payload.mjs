// Keys and values, the same for all contenders.
import { randomBytes } from 'node:crypto'
import { Random } from './random.mjs'

export const VALUE_BYTES = 100
/** Base64, so that it goes into JSON as it is, which no compression of a storage engine shrinks. */
export const text = randomBytes(768 * 1024).toString('base64')

export const valueAt = (n) => {
  const at = (n * VALUE_BYTES) % (text.length - VALUE_BYTES)
  return text.slice(at, at + VALUE_BYTES)
}

export const numbered = (prefix, n) => `${prefix}${String(n).padStart(10, '0')}`
export const keyOf = (n) => numbered('key', n)

const choices = new Random(1)
export const random = (n) => choices.below(n)

let next = 0
/** A key that nothing in this process used before, with a value. */
export function fresh() {
  const n = next++
  return { key: numbered('new', n), value: valueAt(n) }
}

export const freshMany = (size) => Array.from({ length: size }, fresh)
