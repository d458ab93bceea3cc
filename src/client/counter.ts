import { type CounterOp, counted } from '../bytes/counter.js'
import { printKey } from '../errors/print-key.js'

export function requireSafeInteger(by: number): void {
  if (!Number.isSafeInteger(by)) throw new TypeError('by must be a safe integer')
}

/**
 * @param value the present value of `key`.
 * @returns the value after the op.
 * @throws TypeError when `value` is not an integer; RangeError when the new value is not a safe integer.
 */
export function newCount(op: CounterOp, value: Uint8Array | undefined, by: number, key: Uint8Array): number {
  const count = counted(op, value && new TextDecoder().decode(value), by)
  if (count === undefined) throw new TypeError(`the value of ${printKey(key)} is no decimal integer`)
  const number = Number(count)
  if (Number.isSafeInteger(number)) return number
  throw new RangeError(
    `the new value ${count} of ${printKey(key)} is beyond the safe integers: read and write it as BigInt`,
  )
}
