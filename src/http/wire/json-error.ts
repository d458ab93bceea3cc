import { invalid, type KvError } from '../../errors/kv-error.js'

/** The tokens that may come next in a JSON text. */
const VALUE = 0
const VALUE_OR_END = 1
const NAME = 2
const NAME_OR_END = 3
const COLON = 4
const COMMA_OR_END = 5

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const LITERALS = ['true', 'false', 'null'] as const

const BOM = 0xfeff
const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON_SIGN = 0x3a
const BRACKET = 0x5b
const BRACE = 0x7b
/** Distance of `]` from `[`, and of `}` from `{`, in ASCII. */
const TO_CLOSING = 2

/**
 * @returns the index of the first character that is not JSON; the length of a text that ends too early; undefined for JSON.
 * V8 gives the position for some errors only, and its messages quote the text. One pass, without recursion.
 */
export function jsonErrorAt(text: string): number | undefined {
  const isObject = new Uint8Array((text.length >> 3) + 1) // One bit per level.
  let depth = 0
  let isInObject = false
  let expected = VALUE
  for (let at = text.charCodeAt(0) === BOM ? 1 : 0; ; at++) {
    let code = text.charCodeAt(at)
    while (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) code = text.charCodeAt(++at)
    if (at >= text.length) return depth === 0 && expected === COMMA_OR_END ? undefined : text.length
    const mayEnd = expected === COMMA_OR_END || expected === VALUE_OR_END || expected === NAME_OR_END
    if (mayEnd && depth > 0 && code === (isInObject ? BRACE : BRACKET) + TO_CLOSING) {
      depth--
      isInObject = depth > 0 && ((isObject[(depth - 1) >> 3] as number) & (1 << ((depth - 1) & 7))) !== 0
      expected = COMMA_OR_END
    } else if (expected === COMMA_OR_END) {
      if (code !== COMMA || depth === 0) return at
      expected = isInObject ? NAME : VALUE
    } else if (expected === COLON) {
      if (code !== COLON_SIGN) return at
      expected = VALUE
    } else if (code === QUOTE) {
      const end = stringEnd(text, at)
      if (end < 0) return ~end
      at = end
      expected = expected === NAME || expected === NAME_OR_END ? COLON : COMMA_OR_END
    } else if (expected === NAME || expected === NAME_OR_END) {
      return at
    } else if (code === BRACE || code === BRACKET) {
      isInObject = code === BRACE
      const bit = 1 << (depth & 7)
      const byte = isObject[depth >> 3] as number
      isObject[depth++ >> 3] = isInObject ? byte | bit : byte & ~bit
      expected = isInObject ? NAME_OR_END : VALUE_OR_END
    } else {
      const end = scalarEnd(text, at)
      if (end === undefined) return at
      at = end
      expected = COMMA_OR_END
    }
  }
}

/** The error for a text that fastify's parser refuses: not JSON, or with names that replace a prototype. */
export function notJson(text: string): KvError<'invalid_argument'> {
  if (text === '') return invalid('body', 'the body is empty, and not JSON')
  const at = jsonErrorAt(text)
  if (at === undefined) return invalid('body', 'the body holds the name __proto__, or constructor.prototype')
  const { line, column } = placeIn(text, at)
  return invalid('body', `the body is not JSON: ${whatIsWrong(at === text.length, line, column)}`)
}

export function whatIsWrong(hasEnded: boolean, line: number, column: number): string {
  return `${hasEnded ? 'it ends too early' : 'an unexpected character'} at line ${line}, column ${column}`
}

/** Lines and columns count from 1. @internal */
export function placeIn(text: string, index: number): { readonly line: number; readonly column: number } {
  let line = 1
  let lineAt = 0
  for (let at = text.indexOf('\n'); at !== -1 && at < index; at = text.indexOf('\n', lineAt)) {
    line++
    lineAt = at + 1
  }
  return { line, column: index - lineAt + 1 }
}

const SIMPLE_ESCAPE = /["\\/bfnrt]/
const HEX = /[\da-fA-F]/

/** @returns the index of the closing quote, or `~index` of the first wrong character. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) return at
    if (code < 0x20) return ~at
    if (code !== BACKSLASH) continue
    const escaped = text.charAt(++at)
    if (escaped === 'u') {
      const wrong = [1, 2, 3, 4].find((digit) => !HEX.test(text.charAt(at + digit)))
      if (wrong !== undefined) return ~Math.min(at + wrong, text.length)
      at += 4
    } else if (!SIMPLE_ESCAPE.test(escaped)) return ~Math.min(at, text.length)
  }
  return ~text.length
}

/** @returns the index of the last character of a number, `true`, `false` or `null`. */
function scalarEnd(text: string, at: number): number | undefined {
  const literal = LITERALS.find((name) => text.startsWith(name, at))
  if (literal !== undefined) return at + literal.length - 1
  NUMBER.lastIndex = at
  return NUMBER.test(text) ? NUMBER.lastIndex - 1 : undefined
}
