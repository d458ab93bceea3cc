import { addExtension, Packr } from 'msgpackr/pack'
import { ENTRY_BYTES } from '../../bytes/answer-size.js'
import { bytesAsJson } from '../../bytes/bytes-as-json.js'
import { snakeCase } from '../../bytes/field-names.js'
import { asBuffer } from '../../bytes/key-text.js'
import type { Timestamp } from '../../timestamp.js'

/** Content of answers and problems: camelCase names, bytes, numbers, text, lists and nulls. */
export type Plain = object | string | number | boolean | null | undefined

/** Only for writing: `readMsgpack` reads requests. */
const packr = new Packr({ useRecords: false, moreTypes: false })
const UINT32_MAX = 0xffff_ffff

/** An integer of more than 32 bits, written as uint 64. msgpackr itself would write a float 64, or an int 64 for a bigint. */
class Uint64 {
  constructor(readonly value: number) {}
}

type Allocate = (bytes: number) => { target: Uint8Array; targetView: DataView; position: number }

/** Writes the bytes directly, as msgpackr's own extensions do. msgpackr's types lack `allocate`. */
function packUint64({ value }: Uint64, allocate: Allocate): void {
  const { target, targetView, position } = allocate(9)
  target[position] = 0xcf
  targetView.setUint32(position + 1, Math.floor(value / 2 ** 32))
  targetView.setUint32(position + 5, value % 2 ** 32)
}

addExtension({
  Class: Uint64,
  type: 0x55, // Required by msgpackr, but neither written nor read.
  pack: packUint64 as unknown as (value: Uint64) => Buffer,
  unpack(): never {
    throw new Error('this extension is never read')
  },
})

/** Turns camelCase names into snake_case, and bytes into text if they are UTF-8, otherwise into `{"base64"}`. */
export function toJson(answer: Plain): string {
  return JSON.stringify(jsonValue(answer))
}

export function toMsgpack(answer: Plain): Buffer {
  return packr.pack(msgpackValue(answer))
}

export function listHead(length: number): Buffer {
  return head(0xdd, length)
}

export function mapHead(fields: number): Buffer {
  return head(0xdf, fields)
}

function head(token: number, count: number): Buffer {
  const bytes = Buffer.alloc(5, token)
  bytes.writeUInt32BE(count, 1)
  return bytes
}

/** Approximate memory of an object, and of an item of a list or a field. */
const OBJECT_BYTES = 48
const FIELD_BYTES = 8

export function memoryOf(value: Plain): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  if (value instanceof Uint8Array) return ENTRY_BYTES + value.length
  let bytes = OBJECT_BYTES
  if (Array.isArray(value)) for (const item of value) bytes += FIELD_BYTES + memoryOf(item)
  else for (const name in value) bytes += FIELD_BYTES + memoryOf((value as Record<string, Plain>)[name])
  return bytes
}

interface EncodedPair {
  readonly key: Uint8Array
  readonly value?: Uint8Array | undefined
  readonly commitTs?: Timestamp | undefined
  readonly expireTs?: Timestamp | undefined
  readonly leaseFence?: Timestamp | undefined
}

/** The same text as `toJson(pair)` in a third of the time, for streams of millions of pairs. */
export function pairToJson({ key, value, commitTs, expireTs, leaseFence }: EncodedPair): string {
  let json = `{"key":${bytesToJson(key)}`
  if (value !== undefined) json += `,"value":${bytesToJson(value)}`
  if (commitTs !== undefined) json += `,"commit_ts":${commitTs}`
  if (expireTs !== undefined) json += `,"expire_ts":${expireTs}`
  if (leaseFence !== undefined) json += `,"lease_fence":${leaseFence}`
  return `${json}}`
}

export function bytesToJson(value: Uint8Array): string {
  return JSON.stringify(bytesAsJson(value))
}

function jsonValue(value: Plain): unknown {
  if (typeof value !== 'object' || value === null) return value
  return value instanceof Uint8Array ? bytesAsJson(value) : mapObject(value, jsonValue)
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
