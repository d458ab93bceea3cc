import { crc32c, maskedCrc } from './crc32c.js'

const BLOCK = 32 * 1024
const HEADER = 7
const FULL = 1
const FIRST = 2
const MIDDLE = 3
const LAST = 4

interface LogRecord {
  readonly offset: number
  readonly payload: Buffer
}

export interface LogContents {
  readonly records: readonly LogRecord[]
  /** End of `records`; the file's length when nothing follows. */
  readonly soundEnd: number
  /** Sound records behind a bad one. When there are none, the bytes after `soundEnd` are a torn end, as a crash leaves it. */
  readonly after: readonly LogRecord[]
}

/**
 * Reads a file of LevelDB's log format: a `.log` or a MANIFEST. LevelDB itself skips records that fail their checksum, and treats
 * any cut record as the end.
 */
export function readLog(bytes: Buffer): LogContents {
  const records: LogRecord[] = []
  const soundEnd = readFrom(bytes, 0, records)
  const after: LogRecord[] = []
  for (let at = soundEnd; at < bytes.length; ) {
    const next = nextStart(bytes, at + 1)
    if (next === undefined) break
    at = Math.max(readFrom(bytes, next, after), next)
  }
  return { records, soundEnd, after }
}

/** @returns the end of the last complete record, or the offset of the bad one after it. */
function readFrom(bytes: Buffer, from: number, records: LogRecord[]): number {
  let begun: { readonly offset: number; readonly parts: Buffer[] } | undefined
  for (let at = from; ; ) {
    if (BLOCK - (at % BLOCK) < HEADER) at += BLOCK - (at % BLOCK) // The rest of the block is too short for a record.
    if (at >= bytes.length) return begun?.offset ?? bytes.length
    const fragment = fragmentAt(bytes, at)
    const starts = fragment !== undefined && fragment.type <= FIRST
    if (fragment === undefined || starts === (begun !== undefined)) return begun?.offset ?? at
    begun ??= { offset: at, parts: [] }
    begun.parts.push(fragment.payload)
    if (fragment.type === FULL || fragment.type === LAST) {
      const [only] = begun.parts
      const payload = begun.parts.length === 1 && only !== undefined ? only : Buffer.concat(begun.parts)
      records.push({ offset: begun.offset, payload })
      begun = undefined
    }
    at += HEADER + fragment.payload.length
  }
}

/** Searches byte by byte, because lengths on the way may be damaged. */
function nextStart(bytes: Buffer, from: number): number | undefined {
  for (let at = from; at + HEADER <= bytes.length; at++) {
    const type = bytes[at + 6] as number
    if ((type === FULL || type === FIRST) && fragmentAt(bytes, at) !== undefined) return at
  }
  return undefined
}

function fragmentAt(bytes: Buffer, at: number): { readonly type: number; readonly payload: Buffer } | undefined {
  if (at + HEADER > bytes.length) return undefined
  const length = bytes.readUInt16LE(at + 4)
  const type = bytes[at + 6] as number
  const end = at + HEADER + length
  if (type < FULL || type > LAST || end > bytes.length || (at % BLOCK) + HEADER + length > BLOCK) return undefined
  if (maskedCrc(crc32c(bytes, at + 6, end)) !== bytes.readUInt32LE(at)) return undefined
  return { type, payload: bytes.subarray(at + HEADER, end) }
}

export function encodeLog(payloads: readonly Buffer[]): Buffer {
  const parts: Buffer[] = []
  let length = 0
  const add = (part: Buffer): void => {
    parts.push(part)
    length += part.length
  }
  for (const payload of payloads) {
    for (let from = 0, isFirst = true; isFirst || from < payload.length; isFirst = false) {
      const rest = BLOCK - (length % BLOCK)
      if (rest < HEADER) add(Buffer.alloc(rest))
      const end = Math.min(payload.length, from + BLOCK - (length % BLOCK) - HEADER)
      const isLast = end === payload.length
      const header = Buffer.alloc(HEADER)
      header.writeUInt16LE(end - from, 4)
      header[6] = isFirst ? (isLast ? FULL : FIRST) : isLast ? LAST : MIDDLE
      const fragment = payload.subarray(from, end)
      header.writeUInt32LE(maskedCrc(crc32c(fragment, 0, fragment.length, crc32c(header, 6))), 0)
      add(header)
      add(fragment)
      from = end
    }
  }
  return Buffer.concat(parts)
}
