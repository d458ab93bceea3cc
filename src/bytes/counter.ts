/** An op on a counter: decimal text in the range of a signed 64-bit integer, as in other databases. */
export type CounterOp = 'increment' | 'min' | 'max'

/**
 * @param text the counter's present value; undefined when the key is absent, whose new value is `by` with every op.
 * @returns the new value, which may be out of range; undefined when `text` is no decimal integer of 64 bits.
 */
export function counted(op: CounterOp, text: string | undefined, by: number): bigint | undefined {
  const operand = BigInt(by)
  if (text === undefined) return operand
  const value = /^-?\d{1,19}$/.test(text) ? BigInt(text) : undefined
  if (value === undefined || !isInt64(value)) return undefined
  if (op === 'increment') return value + operand
  if (op === 'min') return value < operand ? value : operand
  return value > operand ? value : operand
}

export function isInt64(value: bigint): boolean {
  return BigInt.asIntN(64, value) === value
}
