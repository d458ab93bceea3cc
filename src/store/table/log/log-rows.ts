import { afterPrefix } from '../../../bytes/key-range.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { RECORD, REVISION } from '../layout/layout.js'
import type { Cell, ColumnRange, ColumnWrite, Expected, RowRange, TableRow } from '../layout/table.js'
import { type ChunkHead, decodeEntry, decodeHead, encodeEntry, encodeHead, type LogEntry } from './log-record.js'

/**
 * Rows of the logs: `00 00 logs/ID` says that there is a log, and names its first chunk. `00 00 log/ID/N` is chunk N, with its
 * head in `o:o` and its entries, which no condition names, in `d`. An ID is random, so the chunks of many servers spread over the
 * table.
 */
const LOGS = Buffer.from('\0\0logs/', 'latin1')
const CHUNKS = Buffer.from('\0\0log/', 'latin1')
const NUMBER_BYTES = 4

export const LOGS_RANGE: RowRange = { start: LOGS, end: endOf(LOGS) }
export const CHUNKS_RANGE: RowRange = { start: CHUNKS, end: endOf(CHUNKS) }
export const LOGS_COLUMNS: readonly ColumnRange[] = [{ family: 'o' }]
export const HEAD_COLUMNS: readonly ColumnRange[] = [{ family: 'o' }, { family: 'v' }]

export function logRow(id: string): Buffer {
  return Buffer.concat([LOGS, Buffer.from(id, 'latin1')])
}

export function idOfLog(row: Buffer): string {
  return row.toString('latin1', LOGS.length)
}

/** What the row of a log tells. */
export function encodeFirst(chunk: number): Buffer {
  return packRecord([chunk])
}

export function decodeFirst(bytes: Uint8Array): number {
  const [first] = unpackRecord(bytes, 'log', 1)
  return asInteger(first, 'log')
}

export function chunkRow(id: string, chunk: number): Buffer {
  return Buffer.concat([chunksOf(id), numberBytes(chunk)])
}

export function chunkRange(id: string, from: number): RowRange {
  return { start: chunkRow(id, from), end: endOf(chunksOf(id)) }
}

export function idOfChunk(row: Buffer): string {
  return row.toString('latin1', CHUNKS.length, row.length - NUMBER_BYTES - 1)
}

export function numberOfChunk(row: Buffer): number {
  return row.readUInt32BE(row.length - NUMBER_BYTES)
}

/** The head, the revision, and the entries from `index` on. */
export function columnsFrom(index: number): readonly ColumnRange[] {
  return [{ family: 'd', from: numberBytes(index) }, ...HEAD_COLUMNS]
}

export interface ReadHead {
  readonly head: ChunkHead
  readonly revision: Buffer
}

/** @throws CorruptRecord */
export function readHead({ cells }: { readonly cells: readonly Cell[] }): ReadHead {
  const head = cells.find(({ family }) => family === 'o')
  const revision = cells.find(({ family }) => family === 'v')
  if (head === undefined || revision === undefined) throw new CorruptRecord('a chunk of a log has no head')
  return { head: decodeHead(head.value), revision: revision.value }
}

export interface ReadChunk extends ReadHead {
  readonly entries: readonly LogEntry[]
  /** Of the entries, in the table. */
  readonly bytes: number
}

/** @throws CorruptRecord */
export function readChunk(row: TableRow): ReadChunk {
  const values = row.cells.filter(({ family }) => family === 'd').map(({ value }) => value)
  const bytes = values.reduce((sum, { length }) => sum + length, 0)
  return { ...readHead(row), entries: values.map(decodeEntry), bytes }
}

/** @param revision undefined: there must be no such chunk. */
export function chunkIs(revision: Buffer | undefined): Expected {
  return { family: 'v', qualifier: REVISION, value: revision }
}

export function headWrites(head: ChunkHead, revision: Buffer): ColumnWrite[] {
  return [
    { family: 'o', qualifier: RECORD, value: encodeHead(head) },
    { family: 'v', qualifier: REVISION, value: revision },
  ]
}

export function entryWrite(index: number, entry: LogEntry): ColumnWrite & { readonly value: Buffer } {
  return { family: 'd', qualifier: numberBytes(index), value: encodeEntry(entry) }
}

function chunksOf(id: string): Buffer {
  return Buffer.concat([CHUNKS, Buffer.from(`${id}/`, 'latin1')])
}

function endOf(prefix: Buffer): Buffer {
  return Buffer.from(afterPrefix(prefix) as Uint8Array)
}

function numberBytes(number: number): Buffer {
  const out = Buffer.allocUnsafe(NUMBER_BYTES)
  out.writeUInt32BE(number)
  return out
}
