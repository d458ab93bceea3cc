import { isUtf8 } from 'node:buffer'
import { tooLarge } from '../../bytes/byte-limits.js'
import { BODY_DEPTH_MAX, BODY_FIELDS_MAX } from '../../limits.js'
import {
  type BodyLimits,
  type Container,
  newList,
  newObject,
  pathOf,
  put,
  requireFewer,
  ValueCount,
} from './body-values.js'

/** Texts up to this length are decoded in JavaScript, since a call of Node costs more. */
const SHORT_TEXT = 12
const UINT32 = 2 ** 32

/**
 * Reads one MessagePack value in steps: yields between values. It knows the types of JSON and `bin`, and refuses every
 * extension: msgpackr's own (references, records, big integers, regular expressions) make much work from few bytes. Byte strings
 * are copies, so that a kept value does not keep the whole request in memory.
 * @throws SyntaxError when the bytes are not one such value, or a `str` is not UTF-8; KvError for a value beyond the limits, or
 *   nested deeper than BODY_DEPTH_MAX.
 */
export function* readMsgpack(bytes: Buffer, { valuesMax, textBytesMax }: BodyLimits): Generator<void, unknown, void> {
  const count = new ValueCount(valuesMax)
  const open: Container[] = []
  let at = 0
  /** @returns the index of the first byte taken. */
  const take = (length: number): number => {
    const from = at
    at += length
    if (at > bytes.length) throw new SyntaxError('the MessagePack ends too early')
    return from
  }
  /** @param size width of the length field, in bytes. */
  const takeLength = (size: number): number =>
    size === 1 ? (bytes[take(1)] as number) : bytes.readUIntBE(take(size), size)
  const takeBytes = (length: number): number => {
    const from = take(length)
    if (length > textBytesMax) throw tooLarge(pathOf(open), length, textBytesMax)
    return from
  }
  const readText = (length: number): string => textOf(bytes, takeBytes(length), at)
  const readName = (): string => {
    const token = bytes[take(1)] as number
    if (token >= 0xa0 && token < 0xc0) return readText(token - 0xa0)
    if (token >= 0xd9 && token <= 0xdb) return readText(takeLength(2 ** (token - 0xd9)))
    throw new SyntaxError('a name in a MessagePack map is not a str')
  }

  for (;;) {
    if (count.add(at)) yield
    let value: unknown
    let container: Container | undefined
    const token = bytes[take(1)] as number
    if (token < 0x80) value = token
    else if (token >= 0xe0) value = token - 0x100
    else if (token < 0x90) container = newObject(token - 0x80)
    else if (token < 0xa0) container = newList(token - 0x90)
    else if (token < 0xc0) value = readText(token - 0xa0)
    else
      switch (token) {
        case 0xc0:
          value = null
          break
        case 0xc2:
        case 0xc3:
          value = token === 0xc3
          break
        case 0xc4:
        case 0xc5:
        case 0xc6: {
          const from = takeBytes(takeLength(2 ** (token - 0xc4)))
          value = Buffer.from(bytes.subarray(from, at))
          break
        }
        case 0xca:
          value = bytes.readFloatBE(take(4))
          break
        case 0xcb:
          value = bytes.readDoubleBE(take(8))
          break
        case 0xcc:
        case 0xcd:
        case 0xce:
          value = takeLength(2 ** (token - 0xcc))
          break
        case 0xcf:
          value = takeLength(4) * UINT32 + takeLength(4)
          break
        case 0xd0:
          value = bytes.readInt8(take(1))
          break
        case 0xd1:
          value = bytes.readInt16BE(take(2))
          break
        case 0xd2:
          value = bytes.readInt32BE(take(4))
          break
        case 0xd3:
          value = bytes.readInt32BE(take(4)) * UINT32 + takeLength(4)
          break
        case 0xd9:
        case 0xda:
        case 0xdb:
          value = readText(takeLength(2 ** (token - 0xd9)))
          break
        case 0xdc:
        case 0xdd:
          container = newList(takeLength(token === 0xdc ? 2 : 4))
          break
        case 0xde:
        case 0xdf:
          container = newObject(takeLength(token === 0xde ? 2 : 4))
          break
        default:
          throw new SyntaxError('MessagePack extensions are not supported')
      }
    if (container !== undefined) {
      requireFewer(open.length, BODY_DEPTH_MAX, 'levels')
      if (container.object !== undefined) requireFewer(container.count - 1, BODY_FIELDS_MAX, 'fields in one object')
      if (container.count > bytes.length - at) take(container.count) // Throws: each entry needs at least one byte.
      if (container.count > 0) {
        if (container.object !== undefined) container.name = readName()
        open.push(container)
        continue
      }
      value = container.list ?? container.object
    }
    for (;;) {
      const within = open.at(-1)
      if (within === undefined) {
        if (at < bytes.length) throw new SyntaxError('more than one MessagePack value')
        return value
      }
      put(within, value)
      if (--within.count > 0) {
        if (within.object !== undefined) within.name = readName()
        break
      }
      value = within.list ?? within.object
      open.pop()
    }
  }
}

function textOf(bytes: Buffer, from: number, end: number): string {
  let at = from
  if (end - from <= SHORT_TEXT) {
    let text = ''
    for (; at < end; at++) {
      const byte = bytes[at] as number
      if (byte >= 0x80) break
      text += String.fromCharCode(byte)
    }
    if (at === end) return text
  }
  if (!isUtf8(bytes.subarray(from, end))) throw new SyntaxError('a str is not UTF-8: send it as bin')
  return bytes.toString('utf8', from, end)
}
