import { isUtf8 } from 'node:buffer'
import { addExtension, Packr } from 'msgpackr'
import type { MergedPair } from '../client/write-buffer.js'
import { snakeCase } from '../percolator/field-names.js'
import { asBuffer } from '../percolator/key-text.js'

/** Answers and problems are plain data: camelCase names, bytes, numbers, text, lists and nulls. */
export type Plain = object | string | number | boolean | null | undefined

/** Values that are kept must not keep the whole request. uint 64 arrives as bigint by default, which no schema expects; beyond the safe integers nothing is accepted anyway. */
const packr = new Packr({ useRecords: false, moreTypes: false, int64AsType: 'number', copyBuffers: true })
const UINT32_MAX = 0xffff_ffff

/** An integer that takes 64 bits. msgpackr would write a number as float 64 and a bigint as int 64. */
class Uint64 {
  constructor(readonly value: number) {}
}

type Allocate = (bytes: number) => { target: Uint8Array; targetView: DataView; position: number }

/** Writes the token itself, as msgpackr's own extensions do; its types leave `allocate` out. */
function packUint64({ value }: Uint64, allocate: Allocate): void {
  const { target, targetView, position } = allocate(9)
  target[position] = 0xcf
  targetView.setUint32(position + 1, Math.floor(value / 2 ** 32))
  targetView.setUint32(position + 5, value % 2 ** 32)
}

addExtension({
  Class: Uint64,
  type: 0x55, // msgpackr asks for one; it is neither written nor read.
  pack: packUint64 as unknown as (value: Uint64) => Buffer,
  unpack(): never {
    throw new Error('an extension that means nothing here')
  },
})

/** camelCase to snake_case, and bytes to text where they are UTF-8, else to `{"base64"}`. */
export function toJson(answer: Plain): string {
  return JSON.stringify(jsonValue(answer))
}

export function toMsgpack(answer: Plain): Buffer {
  return packr.pack(msgpackValue(answer))
}

/** @throws when the bytes are not one MessagePack value, or a `str` in it is not UTF-8. */
export function fromMsgpack(bytes: Uint8Array): unknown {
  const value: unknown = packr.unpack(bytes)
  if (value === undefined) throw new Error('an extension that means nothing here')
  requireUtf8(value, asBuffer(bytes))
  return value
}

/** msgpackr decodes bad UTF-8 to U+FFFD: such text is real only where its encoding stands in the message. */
function requireUtf8(value: unknown, message: Buffer): void {
  if (typeof value === 'string') {
    if (value.includes('\ufffd') && !message.includes(value)) throw new Error('a str is not UTF-8: send it as bin')
  } else if (typeof value === 'object' && value !== null && !(value instanceof Uint8Array)) {
    for (const field of Object.values(value)) requireUtf8(field, message)
  }
}

/** What `toJson` makes of a pair, for streams of millions: put together by hand it takes a third of the time. */
export function pairToJson({ key, value, commitTs }: MergedPair): string {
  let json = `{"key":${JSON.stringify(jsonBytes(key))}`
  if (value !== undefined) json += `,"value":${JSON.stringify(jsonBytes(value))}`
  if (commitTs !== undefined) json += `,"commit_ts":${commitTs}`
  return `${json}}`
}

function jsonBytes(value: Uint8Array): string | { readonly base64: string } {
  const bytes = asBuffer(value)
  return isUtf8(bytes) ? bytes.toString('utf8') : { base64: bytes.toString('base64') }
}

function jsonValue(value: Plain): unknown {
  if (typeof value !== 'object' || value === null) return value
  return value instanceof Uint8Array ? jsonBytes(value) : mapObject(value, jsonValue)
}

function msgpackValue(value: Plain): unknown {
  if (typeof value === 'number') return value > UINT32_MAX && Number.isSafeInteger(value) ? new Uint64(value) : value
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof Uint8Array) return asBuffer(value)
  return mapObject(value, msgpackValue)
}

function mapObject(value: object, each: (value: Plain) => unknown): unknown {
  if (Array.isArray(value)) return value.map(each)
  const mapped: Record<string, unknown> = {}
  for (const name in value) {
    const field = (value as Record<string, Plain>)[name]
    if (field !== undefined) mapped[snakeCase(name)] = each(field)
  }
  return mapped
}
