import { printKey } from '../errors/print-key.js'

export function requireSafeInteger(by: number): void {
  if (!Number.isSafeInteger(by)) throw new TypeError('by must be a safe integer')
}

/**
 * Adds `by` to a counter in decimal text. An absent counter is 0.
 * @param value the value of `key`.
 * @throws TypeError when the value is not an integer; RangeError when the sum is not a safe integer.
 */
export function incremented(value: Uint8Array | undefined, by: number, key: Uint8Array): number {
  const text = value === undefined ? '0' : new TextDecoder().decode(value)
  if (!/^-?\d{1,19}$/.test(text)) throw new TypeError(`the value of ${printKey(key)} is no decimal integer`)
  const sum = BigInt(text) + BigInt(by)
  const number = Number(sum)
  if (Number.isSafeInteger(number)) return number
  throw new RangeError(`the sum ${sum} in ${printKey(key)} is beyond the safe integers: read and write it as BigInt`)
}
