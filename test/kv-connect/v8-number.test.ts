import { deserialize, serialize } from 'node:v8'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { numberFromV8, numberToV8 } from '../../src/kv-connect/v8-number.js'

const numbers = fc.oneof(
  fc.double(),
  fc.integer(),
  fc.nat(),
  fc.bigInt(),
  fc.bigInt({ min: -(2n ** 300n), max: 2n ** 300n }),
)

test('reads the numbers that V8 writes, and V8 reads those that are written', () => {
  fc.assert(
    fc.property(numbers, (number) => {
      expect(numberFromV8(serialize(number))).toEqual(number)
      expect(deserialize(numberToV8(number))).toEqual(number)
    }),
    {
      examples: [[0n], [-1n], [2n ** 64n - 1n], [2n ** 64n], [-(2n ** 63n)], [0], [-0], [Number.NaN], [2 ** 31], [-1]],
    },
  )
})

test.each(['text', true, null, undefined, [1n], { a: 1 }, new Date(0), new Map([[1, 2]])])(
  '%o is no number',
  (value) => {
    expect(numberFromV8(serialize(value))).toBeUndefined()
  },
)

test('random, cut and lengthened bytes are a number or nothing', () => {
  fc.assert(
    fc.property(numbers, fc.uint8Array({ maxLength: 40 }), fc.nat(30), (number, more, length) => {
      const bytes = serialize(number)
      expect(numberFromV8(Buffer.concat([bytes, more]))).toEqual(more.length === 0 ? number : undefined)
      if (length < bytes.length) expect(numberFromV8(bytes.subarray(0, length))).toBeUndefined()
      expect(['undefined', 'bigint', 'number']).toContain(typeof numberFromV8(more))
      numberFromV8(Buffer.concat([Buffer.from([0xff, 0x0f]), more]))
    }),
  )
})

test('a bigint has 1024 bytes at most, since a write may have a thousand sums of it', () => {
  expect(numberFromV8(serialize(2n ** 8191n))).toBe(2n ** 8191n)
  expect(numberFromV8(serialize(2n ** 8192n))).toBeUndefined()
})
