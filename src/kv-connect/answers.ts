import { BinaryWriter } from '@bufbuild/protobuf/wire'
import { asBuffer } from '../bytes/key-text.js'
import { isKvError } from '../errors/kv-error.js'
import type { Timestamp } from '../timestamp.js'
import type { KvDatabase } from './kv-database.js'
import { kvValueOf } from './stored-value.js'
import { VERSIONSTAMP_BYTES, versionstampOf } from './versionstamp.js'

/** A key and its version as they are stored: the key with the prefix, the value with its encoding. */
export interface Entry {
  readonly key: Uint8Array
  readonly value?: Uint8Array | undefined
  readonly commitTs: Timestamp
}

/** `SnapshotReadStatus`, `AtomicWriteStatus` */
const SUCCESS = 1
const CHECK_FAILURE = 2

/** Tags of fields: number and wire type. */
const VARINT = { field1: 0x08, field3: 0x18, field4: 0x20, field8: 0x40 } as const
const BYTES = { field1: 0x0a, field2: 0x12, field4: 0x22 } as const

/**
 * A `SnapshotReadOutput`, in pieces of at least `pieceBytes` but for the last.
 * @param ranges the entries of each range.
 */
export function* snapshotReadPieces(
  ranges: readonly (readonly Entry[])[],
  database: KvDatabase,
  pieceBytes: number,
): Generator<Buffer, void, void> {
  let writer = unused()
  let bytes = 0
  for (const entries of ranges) {
    let rangeBytes = 0
    for (const entry of entries) rangeBytes += fieldBytes(entryBytes(entry, database))
    writer.uint32(BYTES.field1).uint32(rangeBytes)
    for (const entry of entries) {
      const length = entryBytes(entry, database)
      writer.uint32(BYTES.field1).uint32(length)
      writeEntry(writer, entry, database)
      bytes += length
      if (bytes < pieceBytes) continue
      yield finished(writer)
      writer = unused()
      bytes = 0
    }
  }
  writer.uint32(VARINT.field4).bool(true) // read_is_strongly_consistent
  writer.uint32(VARINT.field8).int32(SUCCESS)
  yield finished(writer)
}

export function entriesBytes(ranges: readonly (readonly Entry[])[]): number {
  let bytes = 0
  for (const entries of ranges) for (const { key, value } of entries) bytes += key.length + (value?.length ?? 0)
  return bytes
}

export function committed(commitTs: Timestamp): Buffer {
  const writer = unused().uint32(VARINT.field1).int32(SUCCESS)
  return finished(writer.uint32(BYTES.field2).bytes(versionstampOf(commitTs)))
}

/** @returns the answer to a write whose checks did not hold, with their indexes; undefined for another error. */
export function checksFailed(error: unknown): Buffer | undefined {
  const failed = isKvError(error, 'precondition_failed') ? error.fields.failedChecks : undefined
  if (failed === undefined) return undefined
  const writer = unused().uint32(VARINT.field1).int32(CHECK_FAILURE)
  writer.uint32(BYTES.field4).fork()
  for (const { index } of failed) writer.uint32(index)
  return finished(writer.join())
}

/**
 * @param entries of all keys of the watch; undefined for an absent one. Each is said to have changed, as denokv does, because Deno
 *   takes one that has not for absent.
 */
export function watchOutput(entries: readonly (Entry | undefined)[], database: KvDatabase): Buffer {
  const writer = unused().uint32(VARINT.field1).int32(SUCCESS)
  for (const entry of entries) {
    writer.uint32(BYTES.field2).fork().uint32(VARINT.field1).bool(true)
    if (entry !== undefined) {
      writer.uint32(BYTES.field2).uint32(entryBytes(entry, database))
      writeEntry(writer, entry, database)
    }
    writer.join()
  }
  return finished(writer)
}

/** A writer that has finished keeps its buffer, which takes longer to make than to fill. It is gone if an answer fails half-way. */
let spare: BinaryWriter | undefined

function unused(): BinaryWriter {
  const writer = spare ?? new BinaryWriter()
  spare = undefined
  return writer
}

function finished(writer: BinaryWriter): Buffer {
  const bytes = asBuffer(writer.finish())
  if (bytes.length <= SPARE_BYTES_MAX) spare = writer
  return bytes
}

const SPARE_BYTES_MAX = 16 * 1024

function writeEntry(writer: BinaryWriter, { key, value, commitTs }: Entry, { prefix }: KvDatabase): void {
  const { data, encoding } = kvValueOf(value)
  writer.uint32(BYTES.field1).bytes(key.subarray(prefix.length))
  writer.uint32(BYTES.field2).bytes(data)
  writer.uint32(VARINT.field3).int32(encoding)
  writer.uint32(BYTES.field4).bytes(versionstampOf(commitTs))
}

/** The bytes that `writeEntry` writes. */
function entryBytes({ key, value }: Entry, { prefix }: KvDatabase): number {
  const { data } = kvValueOf(value)
  return fieldBytes(key.length - prefix.length) + fieldBytes(data.length) + 2 + fieldBytes(VERSIONSTAMP_BYTES)
}

/** Bytes of a field that holds bytes or a message: its tag, its length, and the content. */
function fieldBytes(length: number): number {
  let bytes = 2 + length
  for (let rest = length; rest >= 0x80; rest >>>= 7) bytes++
  return bytes
}
