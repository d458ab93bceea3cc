import { isUtf8 } from 'node:buffer'
import { asBuffer } from '../../bytes/key-text.js'

/** A range of keys, as observers and consumers have it. */
export function rangeText({
  prefix,
  start,
  end,
}: {
  prefix?: Uint8Array
  start?: Uint8Array
  end?: Uint8Array
}): string {
  if (prefix !== undefined) return `${shown(prefix)}*`
  return `${start === undefined ? '' : shown(start)} up to ${end === undefined ? 'the end' : shown(end)}`
}

/** Control characters, and those that change the direction or the lines of a terminal. */
const UNSHOWN = /[\p{Cc}\p{Cs}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu
const ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** Bytes as text on one line, without control of the terminal; hex where they are not UTF-8. */
export function shown(bytes: Uint8Array): string {
  const buffer = asBuffer(bytes)
  return isUtf8(buffer) ? shownText(buffer.toString()) : `0x${buffer.toString('hex')}`
}

export function shownText(text: string): string {
  return text.replace(UNSHOWN, (character) => {
    const code = character.codePointAt(0) ?? 0
    return ESCAPES[character] ?? (code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`)
  })
}

const graphemes = new Intl.Segmenter('en')
const WIDE =
  /^(?:\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}])/u
const ASCII = /^[\x20-\x7e]*$/

export function widthOf(text: string): number {
  if (ASCII.test(text)) return text.length
  let width = 0
  for (const { segment } of graphemes.segment(text)) width += WIDE.test(segment) ? 2 : 1
  return width
}

/** Most UTF-16 units per column of a terminal: more are cut, so that a long text costs no more than a short one. */
const UNITS_PER_COLUMN = 16

export function cutTo(text: string, width: number): string {
  let used = 0
  let all = ''
  let kept = ''
  for (const { segment } of graphemes.segment(text.slice(0, width * UNITS_PER_COLUMN))) {
    used += widthOf(segment)
    if (used > width) break
    all += segment
    if (used < width) kept = all
  }
  return all.length === text.length ? text : `${kept}…`
}
