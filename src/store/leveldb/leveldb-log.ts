/** LevelDB's log format, of its `.log` files and its manifest: blocks of 32 KiB, records whole or in fragments. */
const BLOCK = 32 * 1024
/** Checksum, length, type. */
const HEADER = 7
const FULL = 1
const FIRST = 2
const MIDDLE = 3
const LAST = 4

export interface LogRecord {
  readonly bytes: Buffer
  /** Something stands before it in the log that is no record. */
  readonly isAfterDamage: boolean
}

/**
 * The records of a log: those that LevelDB would read, and behind damage those that it would pass over. What follows the
 * last of them is taken for a write that a crash has cut off.
 * @see LevelDB's `doc/log_format.md`.
 */
export function* logRecords(log: Buffer): Generator<LogRecord> {
  let fragments: Buffer[] | undefined
  let isDamaged = false
  for (let at = 0; log.length - at >= HEADER; ) {
    const blockEnd = at - (at % BLOCK) + BLOCK
    if (blockEnd - at < HEADER) {
      at = blockEnd
      continue
    }
    const type = log.readUInt8(at + 6)
    const end = at + HEADER + log.readUInt16LE(at + 4)
    const isRecord = type >= FULL && type <= LAST && end <= Math.min(blockEnd, log.length)
    if (!isRecord || crc32c(log.subarray(at + 6, end)) !== unmask(log.readUInt32LE(at))) {
      isDamaged = true
      fragments = undefined
      at++ // LevelDB gives up the rest of the block, or of the log: what may be in it has to be found.
      continue
    }
    const bytes = log.subarray(at + HEADER, end)
    at = end
    const begins = type === FULL || type === FIRST
    if (begins === (fragments !== undefined)) isDamaged = true
    if (begins) fragments = [bytes]
    else fragments?.push(bytes)
    if (type === FIRST || type === MIDDLE || fragments === undefined) continue
    yield { bytes: fragments.length === 1 ? bytes : Buffer.concat(fragments), isAfterDamage: isDamaged }
    fragments = undefined
  }
}

function unmask(masked: number): number {
  const rotated = (masked - 0xa282ead8) >>> 0
  return ((rotated >>> 17) | (rotated << 15)) >>> 0
}

/** CRC-32C (Castagnoli). */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff
  for (let i = 0; i < bytes.length; i++) crc = (crc >>> 8) ^ (CRC_TABLE[(crc ^ (bytes[i] as number)) & 0xff] as number)
  return (crc ^ 0xffffffff) >>> 0
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
  return crc
})
