import { indentedJson, jsonMistake } from './json-text.js'
import { hexDump, jsonBytes, textOf, type WireBytes } from './wire-bytes.js'

export interface DiffLine {
  readonly kind: 'same' | 'removed' | 'added'
  readonly text: string
}

/** With more lines removed and added, all lines between the first and the last difference are told as changed. */
const EDITS_MAX = 1000
/** Longer lines are broken, because a page cannot show them. */
const LINE_CHARACTERS = 1000
const CHARACTERS_MAX = 512 * 1024
const HEX_BYTES_MAX = 64 * 1024

/** Two values as lines of one kind: indented JSON where both are JSON, else text, else bytes. Long ones are cut. */
export function linesOf(before: WireBytes, after: WireBytes): { readonly lines: [string[], string[]]; isCut: boolean } {
  const values = [before, after].map(jsonBytes)
  const texts = values.map(textOf)
  const isText = texts.every((text) => text !== undefined)
  const pretty = isText ? texts.map(prettyJson) : []
  const isJson = pretty.length > 0 && pretty.every((text) => text !== undefined)
  const isCut = isText
    ? texts.some((text) => text.length > CHARACTERS_MAX)
    : values.some((bytes) => bytes.length > HEX_BYTES_MAX)
  const [one = '', other = ''] = isJson
    ? pretty
    : isText
      ? texts.map((text) => text.slice(0, CHARACTERS_MAX))
      : values.map((bytes) => hexDump(bytes.subarray(0, HEX_BYTES_MAX)))
  return { lines: [brokenLines(one), brokenLines(other)], isCut }
}

function prettyJson(text: string): string | undefined {
  if (text === '') return ''
  if (text.length > CHARACTERS_MAX || !/^\s*[[{"]/.test(text) || jsonMistake(text) !== undefined) return undefined
  return indentedJson(text)
    .map((token) => token.text)
    .join('')
}

function brokenLines(text: string): string[] {
  if (text === '') return []
  return text.split('\n').flatMap((line) => (line.length <= LINE_CHARACTERS ? [line] : chunksOf(line)))
}

function chunksOf(line: string): string[] {
  const chunks: string[] = []
  for (let at = 0; at < line.length; at += LINE_CHARACTERS) chunks.push(line.slice(at, at + LINE_CHARACTERS))
  return chunks
}

/** The fewest lines to remove and to add, in the order of the text. */
export function lineDiff(before: readonly string[], after: readonly string[]): DiffLine[] {
  let head = 0
  while (head < before.length && head < after.length && before[head] === after[head]) head++
  let tail = 0
  const most = Math.min(before.length, after.length) - head
  while (tail < most && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++
  const one = before.slice(head, before.length - tail)
  const other = after.slice(head, after.length - tail)
  return [
    ...linesAs('same', before.slice(0, head)),
    ...(shortestEdit(one, other) ?? [...linesAs('removed', one), ...linesAs('added', other)]),
    ...linesAs('same', before.slice(before.length - tail)),
  ]
}

function linesAs(kind: DiffLine['kind'], lines: readonly string[]): DiffLine[] {
  return lines.map((text) => ({ kind, text }))
}

/**
 * Myers, "An O(ND) Difference Algorithm and Its Variations" (1986): of all edits of a length, the furthest on each diagonal.
 * @returns undefined for more than EDITS_MAX edits.
 */
function shortestEdit(before: readonly string[], after: readonly string[]): DiffLine[] | undefined {
  const [n, m] = [before.length, after.length]
  /** After so many edits, by diagonal (x - y) plus that number: how far `before` is used up. */
  const reached: Int32Array[] = []
  for (let edits = 0; edits <= Math.min(n + m, EDITS_MAX); edits++) {
    const furthest = new Int32Array(2 * edits + 1)
    reached.push(furthest)
    for (let k = -edits; k <= edits; k += 2) {
      let x = startOf(reached, edits, k).x
      while (x < n && x - k < m && before[x] === after[x - k]) x++
      furthest[k + edits] = x
      if (x >= n && x - k >= m) return pathBack(before, after, reached)
    }
  }
  return undefined
}

/** Where diagonal k is entered by the edit before, and from which diagonal. */
function startOf(
  reached: readonly Int32Array[],
  edits: number,
  k: number,
): { readonly x: number; readonly from: number } {
  const last = reached[edits - 1]
  if (last === undefined) return { x: 0, from: 0 }
  const [below = -1, above = -1] = [last[k - 1 + edits - 1], last[k + 1 + edits - 1]]
  const isAdded = k === -edits || (k !== edits && below < above)
  return isAdded ? { x: above, from: k + 1 } : { x: below + 1, from: k - 1 }
}

function pathBack(before: readonly string[], after: readonly string[], reached: readonly Int32Array[]): DiffLine[] {
  const lines: DiffLine[] = []
  let x = before.length
  let k = x - after.length
  for (let edits = reached.length - 1; edits >= 0; edits--) {
    const start = startOf(reached, edits, k)
    for (; x > start.x; x--) lines.push({ kind: 'same', text: before[x - 1] ?? '' })
    if (edits === 0) break
    if (start.from === k + 1) lines.push({ kind: 'added', text: after[x - k - 1] ?? '' })
    else lines.push({ kind: 'removed', text: before[--x] ?? '' })
    k = start.from
  }
  return lines.reverse()
}
