import { invalid } from '../errors/kv-error.js'
import { ENCODING, type KvValue } from './stored-value.js'
import { numberFromV8, numberToV8 } from './v8-number.js'

/** An integer of 64 bits without a sign (`Deno.KvU64`). */
class U64 {
  constructor(readonly value: bigint) {}
}

type Operand = U64 | bigint | number

export interface SumLimits {
  /** V8-encoded; empty: none. */
  readonly min: Uint8Array
  readonly max: Uint8Array
  /** Whether a result outside of them becomes the nearer one. Otherwise it is refused. */
  readonly clamp: boolean
}

export type Combine = (old: KvValue | undefined) => KvValue

/**
 * MIN or MAX of two `KvU64`. An absent key gets the operand.
 * @throws KvError `invalid_argument`, at once for an operand of another type; the function throws it for such a stored value.
 */
export function u64Mutation(name: 'sum' | 'min' | 'max', operand: KvValue): Combine {
  const by = u64Of(operand)
  if (by === undefined) throw refusal(`Failed to perform '${name}' mutation on a non-U64 operand`)
  return (old) => {
    if (old === undefined) return operand
    const value = u64Of(old)
    if (value === undefined) throw refusal(`Failed to perform '${name}' mutation on a non-U64 value in the database`)
    if (name === 'sum') return encoded(new U64(BigInt.asUintN(64, value + by)))
    return (name === 'min' ? value <= by : value >= by) ? old : operand
  }
}

/** SUM of two `KvU64`, which wraps around, of two bigints or of two numbers. An absent key gets the operand. @throws as `u64Mutation` */
export function sumMutation(operand: KvValue, limits: SumLimits): Combine {
  if (operand.encoding === ENCODING.le64) return u64Mutation('sum', operand)
  const by = operandOf(operand)
  const min = limitOf(limits.min)
  const max = limitOf(limits.max)
  if (by === undefined || min === INVALID || max === INVALID)
    throw refusal('Some of the parameters are not valid V8 values')
  for (const limit of [min, max])
    if (limit !== undefined && typeof limit !== typeof by)
      throw refusal('Min/max parameters have different types than the operand')
  return (old) => {
    if (old === undefined) return encoded(by)
    const value = operandOf(old)
    if (value === undefined) throw refusal('unsupported value type')
    const isUnlimited = min === undefined && max === undefined && !limits.clamp
    // Clients of before `KvU64` sums send a bigint.
    if (value instanceof U64 && isUnlimited && typeof by === 'bigint' && by >= 0n && by <= U64_MAX)
      return encoded(new U64(BigInt.asUintN(64, value.value + by)))
    if (typeof value === 'bigint' && typeof by === 'bigint') return encoded(within(value + by, min, max, limits.clamp))
    if (typeof value === 'number' && typeof by === 'number') return encoded(within(value + by, min, max, limits.clamp))
    throw refusal(`Cannot sum ${nameOf(value)} with ${nameOf(by)}`)
  }
}

const U64_MAX = 2n ** 64n - 1n
const INVALID = Symbol('not a number in V8 encoding')

function within<T extends bigint | number>(
  sum: T,
  min: bigint | number | undefined,
  max: bigint | number | undefined,
  clamp: boolean,
): bigint | number {
  const isBelow = min !== undefined && sum < min
  if (!isBelow && !(max !== undefined && sum > max)) return sum
  if (!clamp) throw refusal('The result of a Sum operation would exceed its range limit')
  const raised = isBelow ? min : sum
  return max !== undefined && raised > max ? max : raised
}

function u64Of({ encoding, data }: KvValue): bigint | undefined {
  return encoding === ENCODING.le64 ? Buffer.from(data).readBigUInt64LE() : undefined
}

function operandOf(value: KvValue): Operand | undefined {
  const u64 = u64Of(value)
  if (u64 !== undefined) return new U64(u64)
  return value.encoding === ENCODING.v8 ? numberFromV8(value.data) : undefined
}

function limitOf(v8: Uint8Array): bigint | number | undefined | typeof INVALID {
  return v8.length === 0 ? undefined : (numberFromV8(v8) ?? INVALID)
}

function encoded(value: Operand): KvValue {
  if (!(value instanceof U64)) return { encoding: ENCODING.v8, data: numberToV8(value) }
  const data = Buffer.allocUnsafe(8)
  data.writeBigUInt64LE(value.value)
  return { encoding: ENCODING.le64, data }
}

function nameOf(value: Operand): string {
  if (value instanceof U64) return 'KvU64'
  return typeof value === 'bigint' ? 'BigInt' : 'Number'
}

/** The words are those of denokv, which programs may look for. */
function refusal(detail: string): Error {
  return invalid('mutations', detail)
}
