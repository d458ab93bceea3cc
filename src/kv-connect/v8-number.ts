/** A number or a bigint as V8 serializes it. Other values of V8 are never looked into. */

const VERSION_TAG = 0xff
/** The version that Node and Deno write. Numbers look the same in all versions. */
const VERSION = 15
const PADDING = 0x00
const TAG = { bigint: 0x5a, double: 0x4e, int32: 0x49, uint32: 0x55 } as const
/** V8 writes a bigint as digits of this many bytes. */
const DIGIT_BYTES = 8
const VARINT_BYTES_MAX = 5
/** Of a bigint: reading and printing a long one takes long, and one write may have a thousand sums. */
const BIGINT_BYTES_MAX = 1024

/** @returns undefined for other values, for a bigint of over 1024 bytes, and for malformed bytes. */
export function numberFromV8(bytes: Uint8Array): bigint | number | undefined {
  if (bytes[0] !== VERSION_TAG) return undefined
  const reader = { bytes, at: 1 }
  if (varint(reader) === undefined) return undefined
  while (bytes[reader.at] === PADDING) reader.at++
  const tag = bytes[reader.at++]
  if (tag === TAG.double) return double(reader)
  const head = varint(reader)
  if (head === undefined) return undefined
  if (tag === TAG.bigint) return bigint(reader, head)
  if (reader.at !== bytes.length) return undefined
  if (tag === TAG.int32) return (head >>> 1) ^ -(head & 1)
  return tag === TAG.uint32 ? head : undefined
}

export function numberToV8(value: bigint | number): Uint8Array {
  return typeof value === 'bigint' ? bigintToV8(value) : doubleToV8(value)
}

interface Reader {
  readonly bytes: Uint8Array
  at: number
}

/** Base 128, least significant group first, in 32 bits. */
function varint(reader: Reader): number | undefined {
  let value = 0
  for (let group = 0; group < VARINT_BYTES_MAX; group++) {
    const byte = reader.bytes[reader.at++]
    if (byte === undefined) return undefined
    value |= (byte & 0x7f) << (7 * group)
    if (byte < 0x80) return value >>> 0
  }
  return undefined
}

function double({ bytes, at }: Reader): number | undefined {
  if (bytes.length !== at + 8) return undefined
  return new DataView(bytes.buffer, bytes.byteOffset + at, 8).getFloat64(0, true)
}

/** @param head bit 0: the sign; the others: the number of bytes. */
function bigint({ bytes, at }: Reader, head: number): bigint | undefined {
  const length = head >>> 1
  if (bytes.length !== at + length || length > BIGINT_BYTES_MAX) return undefined
  if (length === 0) return 0n
  const size = BigInt(`0x${Buffer.from(bytes.subarray(at)).reverse().toString('hex')}`)
  return (head & 1) === 1 ? -size : size
}

function bigintToV8(value: bigint): Uint8Array {
  const size = value < 0n ? -value : value
  const hex = size === 0n ? '' : size.toString(16)
  const length = Math.ceil(hex.length / 2 / DIGIT_BYTES) * DIGIT_BYTES
  const digits = Buffer.from(hex.padStart(2 * length, '0'), 'hex').reverse()
  const head = [VERSION_TAG, VERSION, TAG.bigint]
  let rest = length * 2 + (value < 0n ? 1 : 0)
  for (; rest >= 0x80; rest >>>= 7) head.push((rest & 0x7f) | 0x80)
  return Buffer.concat([Buffer.from([...head, rest]), digits])
}

function doubleToV8(value: number): Uint8Array {
  const bytes = Buffer.from([VERSION_TAG, VERSION, TAG.double, 0, 0, 0, 0, 0, 0, 0, 0])
  bytes.writeDoubleLE(value, 3)
  return bytes
}
