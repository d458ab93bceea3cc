import { isUtf8 } from 'node:buffer'
import { addExtension, Packr } from 'msgpackr'
import { ENTRY_BYTES } from '../../bytes/answer-size.js'
import { snakeCase } from '../../bytes/field-names.js'
import { asBuffer } from '../../bytes/key-text.js'
import type { MergedPair } from '../../coordinator/write-buffer.js'

/** Answers and problems are plain data: camelCase names, bytes, numbers, text, lists and nulls. */
export type Plain = object | string | number | boolean | null | undefined

/** Writes only; what clients send is read by `readMsgpack`. */
const packr = new Packr({ useRecords: false, moreTypes: false })
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

/** What comes before the items of a list in MessagePack. */
export function listHead(length: number): Buffer {
  return head(0xdd, length)
}

/** What comes before the names and values of a map in MessagePack. */
export function mapHead(fields: number): Buffer {
  return head(0xdf, fields)
}

function head(token: number, count: number): Buffer {
  const bytes = Buffer.alloc(5, token)
  bytes.writeUInt32BE(count, 1)
  return bytes
}

/** What an object, an entry of a list and a field cost in memory, about. */
const OBJECT_BYTES = 48
const FIELD_BYTES = 8

/** What an answer takes in memory until it is encoded, about. */
export function memoryOf(value: Plain): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  if (value instanceof Uint8Array) return ENTRY_BYTES + value.length
  let bytes = OBJECT_BYTES
  if (Array.isArray(value)) for (const item of value) bytes += FIELD_BYTES + memoryOf(item)
  else for (const name in value) bytes += FIELD_BYTES + memoryOf((value as Record<string, Plain>)[name])
  return bytes
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
