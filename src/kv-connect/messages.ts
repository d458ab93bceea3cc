import { BinaryReader } from '@bufbuild/protobuf/wire'
import { invalid, KvError } from '../errors/kv-error.js'
import { KV_CHECKS_MAX, KV_MUTATIONS_MAX, KV_RANGES_MAX, KV_WATCH_KEYS_MAX } from '../limits.js'
import { tooMany } from './refusals.js'

/** The requests of `com.deno.kv.datapath` (denokv, proto/schema/datapath.proto). Fields that are absent have their defaults. */

export interface ReadRange {
  readonly start: Uint8Array
  readonly end: Uint8Array
  readonly limit: number
  readonly reverse: boolean
}

export interface CheckMessage {
  readonly key: Uint8Array
  readonly versionstamp: Uint8Array
}

export interface Mutation {
  readonly key: Uint8Array
  readonly value: { readonly data: Uint8Array; readonly encoding: number } | undefined
  readonly type: number
  /** An int64: beyond 2^53 not exact. */
  readonly expireAtMs: number
  readonly sumMin: Uint8Array
  readonly sumMax: Uint8Array
  readonly sumClamp: boolean
}

export interface AtomicWrite {
  readonly checks: readonly CheckMessage[]
  readonly mutations: readonly Mutation[]
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

const NOTHING: Uint8Array = new Uint8Array()

/** @throws KvError `invalid_argument` for bytes that are no such message, and over the protocol's limits. */
export function snapshotReadFrom(body: Uint8Array): readonly ReadRange[] {
  const ranges: ReadRange[] = []
  readMessage(body, (reader, tag) => {
    if (tag !== TAG.bytes(1)) return false
    if (ranges.length === KV_RANGES_MAX) throw tooMany('ranges', KV_RANGES_MAX)
    const range = { start: NOTHING, end: NOTHING, limit: 0, reverse: false }
    readNested(reader, (inner) => {
      if (inner === TAG.bytes(1)) range.start = reader.bytes()
      else if (inner === TAG.bytes(2)) range.end = reader.bytes()
      else if (inner === TAG.varint(3)) range.limit = reader.int32()
      else if (inner === TAG.varint(4)) range.reverse = reader.bool()
      else return false
      return true
    })
    ranges.push(range)
    return true
  })
  return ranges
}

/** @throws as `snapshotReadFrom` */
export function atomicWriteFrom(body: Uint8Array): AtomicWrite {
  const checks: CheckMessage[] = []
  const mutations: Mutation[] = []
  readMessage(body, (reader, tag) => {
    if (tag === TAG.bytes(1)) {
      if (checks.length === KV_CHECKS_MAX) throw tooMany('checks', KV_CHECKS_MAX)
      checks.push(readCheck(reader))
    } else if (tag === TAG.bytes(2)) {
      if (mutations.length === KV_MUTATIONS_MAX) throw tooMany('mutations', KV_MUTATIONS_MAX)
      mutations.push(readMutation(reader))
    } else if (tag === TAG.bytes(3)) throw invalid('enqueues', 'a remote database has no queues')
    else return false
    return true
  })
  return { checks, mutations }
}

/** @returns the keys. @throws as `snapshotReadFrom` */
export function watchFrom(body: Uint8Array): readonly Uint8Array[] {
  const keys: Uint8Array[] = []
  readMessage(body, (reader, tag) => {
    if (tag !== TAG.bytes(1)) return false
    if (keys.length === KV_WATCH_KEYS_MAX) throw tooMany('keys', KV_WATCH_KEYS_MAX)
    let key: Uint8Array = NOTHING
    readNested(reader, (inner) => {
      if (inner !== TAG.bytes(1)) return false
      key = reader.bytes()
      return true
    })
    keys.push(key)
    return true
  })
  return keys
}

function readCheck(reader: BinaryReader): CheckMessage {
  const check = { key: NOTHING, versionstamp: NOTHING }
  readNested(reader, (tag) => {
    if (tag === TAG.bytes(1)) check.key = reader.bytes()
    else if (tag === TAG.bytes(2)) check.versionstamp = reader.bytes()
    else return false
    return true
  })
  return check
}

function readMutation(reader: BinaryReader): Mutation {
  const mutation: Mutable<Mutation> = {
    key: NOTHING,
    value: undefined,
    type: 0,
    expireAtMs: 0,
    sumMin: NOTHING,
    sumMax: NOTHING,
    sumClamp: false,
  }
  readNested(reader, (tag) => {
    if (tag === TAG.bytes(1)) mutation.key = reader.bytes()
    else if (tag === TAG.bytes(2)) mutation.value = readValue(reader, mutation.value)
    else if (tag === TAG.varint(3)) mutation.type = reader.int32()
    else if (tag === TAG.varint(4)) mutation.expireAtMs = Number(reader.int64())
    else if (tag === TAG.bytes(5)) mutation.sumMin = reader.bytes()
    else if (tag === TAG.bytes(6)) mutation.sumMax = reader.bytes()
    else if (tag === TAG.varint(7)) mutation.sumClamp = reader.bool()
    else return false
    return true
  })
  return mutation
}

/** @param earlier of the same field: a message that is given twice is merged. */
function readValue(reader: BinaryReader, earlier: Mutation['value']): Mutation['value'] {
  const value = { data: NOTHING, encoding: 0, ...earlier }
  readNested(reader, (tag) => {
    if (tag === TAG.bytes(1)) value.data = reader.bytes()
    else if (tag === TAG.varint(2)) value.encoding = reader.int32()
    else return false
    return true
  })
  return value
}

// ---- The wire format

const TAG = {
  varint: (field: number): number => field << 3,
  bytes: (field: number): number => (field << 3) | 2,
} as const

/** @param field reads one field; returns false, having read nothing, for an unknown one. */
function readMessage(body: Uint8Array, field: (reader: BinaryReader, tag: number) => boolean): void {
  try {
    const reader = new BinaryReader(body)
    readFields(reader, reader.len, (tag) => field(reader, tag))
  } catch (error) {
    if (error instanceof KvError) throw error
    throw invalid('body', `the body is no such message: ${error instanceof Error ? error.message : error}`)
  }
}

function readNested(reader: BinaryReader, field: (tag: number) => boolean): void {
  const length = reader.uint32()
  readFields(reader, reader.pos + length, field)
}

function readFields(reader: BinaryReader, end: number, field: (tag: number) => boolean): void {
  if (end > reader.len) throw new RangeError('it is cut off')
  while (reader.pos < end) {
    const tag = reader.uint32()
    if (tag < 8) throw new RangeError('it has a field 0')
    if (!field(tag)) reader.skip(tag & 7, tag >>> 3)
  }
  if (reader.pos > end) throw new RangeError('it has a field that is longer than its message')
}
