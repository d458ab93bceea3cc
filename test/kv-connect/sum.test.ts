import { deserialize, serialize } from 'node:v8'
import { expect, test } from 'vitest'
import type { KvValue } from '../../src/kv-connect/stored-value.js'
import { sumMutation, u64Mutation } from '../../src/kv-connect/sum.js'

const NOTHING = new Uint8Array()

function u64(value: bigint): KvValue {
  const data = Buffer.alloc(8)
  data.writeBigUInt64LE(value)
  return { encoding: 2, data }
}
const v8 = (value: unknown): KvValue => ({ encoding: 1, data: serialize(value) })
const bytes = (text: string): KvValue => ({ encoding: 3, data: Buffer.from(text) })

/** What is stored, as the client shows it; a refusal is its text. */
function result(run: () => KvValue): unknown {
  try {
    const { encoding, data } = run()
    return encoding === 2 ? { u64: Buffer.from(data).readBigUInt64LE() } : deserialize(data)
  } catch (error) {
    expect(error).toMatchObject({ code: 'invalid_argument' })
    return (error as Error).message
  }
}

const NON_U64 = (op: string) => `Failed to perform '${op}' mutation on a non-U64 value in the database`

const u64Cases = [
  { op: 'sum', old: undefined, by: u64(1n), want: { u64: 1n } },
  { op: 'sum', old: u64(10n), by: u64(1n), want: { u64: 11n } },
  { op: 'sum', old: u64(2n ** 64n - 1n), by: u64(10n), want: { u64: 9n } },
  { op: 'min', old: undefined, by: u64(1n), want: { u64: 1n } },
  { op: 'min', old: u64(10n), by: u64(5n), want: { u64: 5n } },
  { op: 'min', old: u64(5n), by: u64(15n), want: { u64: 5n } },
  { op: 'max', old: u64(10n), by: u64(5n), want: { u64: 10n } },
  { op: 'max', old: u64(10n), by: u64(2n ** 64n - 1n), want: { u64: 2n ** 64n - 1n } },
  { op: 'sum', old: v8(1), by: u64(1n), want: NON_U64('sum') },
  { op: 'min', old: v8(1n), by: u64(1n), want: NON_U64('min') },
  { op: 'max', old: bytes('12345678'), by: u64(1n), want: NON_U64('max') },
  { op: 'min', old: u64(1n), by: v8(1), want: "Failed to perform 'min' mutation on a non-U64 operand" },
  { op: 'max', old: undefined, by: bytes('12345678'), want: "Failed to perform 'max' mutation on a non-U64 operand" },
] as const

test.each(u64Cases)('$op of KvU64: $want', ({ op, old, by, want }) => {
  expect(result(() => u64Mutation(op, by)(old))).toEqual(want)
})

const OUT_OF_RANGE = 'The result of a Sum operation would exceed its range limit'

const sumCases = [
  { name: 'KvU64', old: u64(1n), by: u64(2n), want: { u64: 3n } },
  { name: 'an absent key gets the operand, as it is', old: undefined, by: v8(7n), min: 10n, want: 7n },
  { name: 'bigints', old: v8(-(2n ** 70n)), by: v8(2n ** 70n + 1n), want: 1n },
  { name: 'numbers', old: v8(0.5), by: v8(2), want: 2.5 },
  { name: 'a bigint on KvU64, of old clients', old: u64(2n ** 64n - 1n), by: v8(1n), want: { u64: 0n } },
  { name: 'a negative one', old: u64(1n), by: v8(-1n), want: 'Cannot sum KvU64 with BigInt' },
  { name: 'a limited one', old: u64(1n), by: v8(1n), max: 9n, want: 'Cannot sum KvU64 with BigInt' },
  { name: 'a number on a bigint', old: v8(1n), by: v8(1), want: 'Cannot sum BigInt with Number' },
  { name: 'a KvU64 on a bigint', old: v8(1n), by: u64(1n), want: NON_U64('sum') },
  { name: 'text', old: v8('text'), by: v8(1n), want: 'unsupported value type' },
  { name: 'by text', old: v8(1n), by: v8('text'), want: 'Some of the parameters are not valid V8 values' },
  { name: 'by bytes', old: v8(1n), by: bytes('1'), want: 'Some of the parameters are not valid V8 values' },
  { name: 'min of text', old: v8(1n), by: v8(1n), min: 'a', want: 'Some of the parameters are not valid V8 values' },
  {
    name: 'limits of another type',
    old: v8(1n),
    by: v8(1n),
    max: 5,
    want: 'Min/max parameters have different types than the operand',
  },
  { name: 'below min', old: v8(3n), by: v8(-3n), min: 1n, want: OUT_OF_RANGE },
  { name: 'above max', old: v8(3n), by: v8(3n), max: 5n, want: OUT_OF_RANGE },
  { name: 'at min', old: v8(3n), by: v8(-2n), min: 1n, want: 1n },
  { name: 'at max', old: v8(3), by: v8(2), max: 5, want: 5 },
  { name: 'clamped to min', old: v8(3n), by: v8(-30n), min: 1n, clamp: true, want: 1n },
  { name: 'clamped to max', old: v8(3), by: v8(30), max: 5, clamp: true, want: 5 },
  { name: 'clamped between', old: v8(3n), by: v8(-9n), min: 7n, max: 5n, clamp: true, want: 5n },
]

test.each(sumCases)('sum: $name: $want', ({ old, by, min, max, clamp = false, want }) => {
  const limit = (value: unknown) => (value === undefined ? NOTHING : serialize(value))
  expect(result(() => sumMutation(by, { min: limit(min), max: limit(max), clamp })(old))).toEqual(want)
})
