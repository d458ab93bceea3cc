import { tooLarge } from '../../bytes/byte-limits.js'
import { BODY_DEPTH_MAX, BODY_FIELDS_MAX, JSON_WORD_BYTES_MAX } from '../../limits.js'
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
import { jsonErrorAt } from './json-error.js'

const [QUOTE, COMMA, COLON, BACKSLASH] = [0x22, 0x2c, 0x3a, 0x5c]
const [LIST, LIST_END, OBJECT, OBJECT_END] = [0x5b, 0x5d, 0x7b, 0x7d]
const [MINUS, ZERO, NINE] = [0x2d, 0x30, 0x39]
const [SPACE, TAB, NEWLINE, RETURN] = [0x20, 0x09, 0x0a, 0x0d]
const BOM = [0xef, 0xbb, 0xbf]
/** The first bytes of a text are searched in JavaScript, the rest by Node: a call costs more than a few bytes. */
const SHORT_TEXT = 32
/** Most bytes of JSON per byte of text: `\u0000`. */
const ESCAPED = 6
/** Integers of up to this many digits are exact in a double. */
const DIGITS_MAX = 15

/** A line number, counted from 1, and the index of its first byte. */
interface Line {
  number: number
  from: number
}

/** `at` is the index of the first byte that is not JSON. */
class Unexpected extends Error {
  constructor(readonly at: number) {
    super()
  }
}

/**
 * `JSON.parse` in steps, for long bodies: yields between values.
 * @param bytes valid UTF-8.
 * @throws SyntaxError with line and column, which count from 1; KvError for a body beyond `limits`, or nested deeper than
 *   BODY_DEPTH_MAX.
 */
export function* readJson(bytes: Buffer, limits: BodyLimits): Generator<void, unknown, void> {
  const line: Line = { number: 1, from: 0 }
  try {
    return yield* readValue(bytes, limits, line)
  } catch (error) {
    if (!(error instanceof Unexpected)) throw error
    const column = bytes.toString('utf8', line.from, error.at).length + 1
    const wrong = error.at >= bytes.length ? 'it ends too early' : 'an unexpected character'
    throw new SyntaxError(`${wrong} at line ${line.number}, column ${column}`)
  }
}

/** @param line updated while reading. JSON has line breaks only between values. */
function* readValue(
  bytes: Buffer,
  { valuesMax, textBytesMax }: BodyLimits,
  line: Line,
): Generator<void, unknown, void> {
  const count = new ValueCount(valuesMax)
  const open: Container[] = []
  let at = BOM.every((byte, i) => bytes[i] === byte) ? BOM.length : 0
  const skipSpace = (): number => {
    for (; ; at++) {
      const byte = bytes[at] as number // Undefined at the end of the text, which is not white space.
      if (byte === NEWLINE) {
        line.number++
        line.from = at + 1
      } else if (byte !== SPACE && byte !== TAB && byte !== RETURN) return byte
    }
  }
  const expect = (byte: number): void => {
    if (skipSpace() !== byte) throw new Unexpected(at)
    at++
  }
  const readText = (): string => {
    const end = endOfText(bytes, at)
    const from = at
    if (end - from > ESCAPED * textBytesMax) throw tooLarge(pathOf(open), end - from, textBytesMax)
    at = end
    return textOf(bytes, from, end)
  }
  const readName = (): string => {
    if (skipSpace() !== QUOTE) throw new Unexpected(at)
    const name = readText()
    expect(COLON)
    return name
  }

  for (;;) {
    if (count.add(at)) yield
    let value: unknown
    const byte = skipSpace()
    if (byte === QUOTE) {
      value = readText()
    } else if (byte === LIST || byte === OBJECT) {
      requireFewer(open.length, BODY_DEPTH_MAX, 'levels')
      const container = byte === LIST ? newList(0) : newObject(0)
      at++
      const isEmpty = skipSpace() === (byte === LIST ? LIST_END : OBJECT_END)
      if (!isEmpty) {
        if (container.object !== undefined) container.name = readName()
        open.push(container)
        continue
      }
      at++
      value = container.list ?? container.object
    } else {
      const from = at
      at = endOfWord(bytes, at)
      value = wordOf(bytes, from, at)
    }
    for (;;) {
      const container = open.at(-1)
      const next = skipSpace()
      if (container === undefined) {
        if (at < bytes.length) throw new Unexpected(at)
        return value
      }
      put(container, value)
      if (next === COMMA) {
        at++
        if (container.object !== undefined) {
          requireFewer(++container.count, BODY_FIELDS_MAX, 'fields in one object')
          container.name = readName()
        }
        break
      }
      if (next !== (container.list === undefined ? OBJECT_END : LIST_END)) throw new Unexpected(at)
      at++
      value = container.list ?? container.object
      open.pop()
    }
  }
}

/** @param from index of the opening quote. @returns the index after the closing quote. */
function endOfText(bytes: Buffer, from: number): number {
  let at = from + 1
  for (const end = Math.min(bytes.length, at + SHORT_TEXT); at < end; at++) {
    if (bytes[at] === QUOTE) return at + 1
    if (bytes[at] === BACKSLASH) at++
  }
  for (;;) {
    const quote = bytes.indexOf(QUOTE, at)
    if (quote === -1) {
      const lineEnd = bytes.indexOf(NEWLINE, from) // A string has none.
      throw new Unexpected(lineEnd === -1 ? bytes.length : lineEnd)
    }
    let escapes = 0
    while (quote - escapes > at && bytes[quote - escapes - 1] === BACKSLASH) escapes++
    at = quote + 1
    if (escapes % 2 === 0) return at
  }
}

function textOf(bytes: Buffer, from: number, end: number): string {
  if (end - from <= SHORT_TEXT) {
    let isPlain = true
    for (let at = from + 1; isPlain && at < end - 1; at++) {
      const byte = bytes[at] as number
      isPlain = byte >= 0x20 && byte < 0x80 && byte !== BACKSLASH
    }
    if (isPlain) return bytes.toString('latin1', from + 1, end - 1)
  }
  return parse(from, bytes.toString('utf8', from, end)) as string
}

/** @returns the index after a number, `true`, `false` or `null`. */
function endOfWord(bytes: Buffer, from: number): number {
  let at = from
  for (const end = Math.min(bytes.length, at + JSON_WORD_BYTES_MAX); at < end; at++) {
    const byte = bytes[at] as number
    const isPart = (byte >= 0x61 && byte <= 0x7a) || (byte >= ZERO && byte <= NINE) || byte === 0x2b || byte === MINUS
    if (!isPart && byte !== 0x2e && byte !== 0x45) break
  }
  if (at === from) throw new Unexpected(at)
  return at
}

function wordOf(bytes: Buffer, from: number, end: number): unknown {
  const length = end - from
  if (length <= DIGITS_MAX && (bytes[from] !== ZERO || length === 1)) {
    let number = 0
    let at = from
    for (; at < end; at++) {
      const byte = bytes[at] as number
      if (byte < ZERO || byte > NINE) break
      number = 10 * number + byte - ZERO
    }
    if (at === end) return number
  }
  return parse(from, bytes.toString('latin1', from, end))
}

/** @param from index of `text` in the body. */
function parse(from: number, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Unexpected(from + Buffer.byteLength(text.slice(0, jsonErrorAt(text))))
  }
}
