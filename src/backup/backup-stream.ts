import { createHmac } from 'node:crypto'
import { afterKey } from '../bytes/key-range.js'
import type { Pair, ScanAnswer } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import { BackupEncoder } from './backup-encoder.js'
import { type BackupHeader, type BackupPair, BLOCK_BYTES } from './backup-format.js'
import { recordBytes } from './pair-records.js'

/** @param from of the range `[from, end)`; undefined: from the first key. */
export type ReadPage = (from: Uint8Array | undefined) => Promise<ScanAnswer>

/** The same for the same snapshot of the same store, and for no other. @param secret of the store. */
export function backupId(secret: Uint8Array, ts: Timestamp): string {
  return createHmac('sha256', secret).update(`backup at ${ts}`).digest('hex').slice(0, 32)
}

/** The bytes of a backup, a block at a time. While one page is used the next is read; nothing is read that nobody pulls. */
export async function* backupStream(header: BackupHeader, readPage: ReadPage): AsyncGenerator<Buffer, void, undefined> {
  const encoder = new BackupEncoder()
  const page = (from: Uint8Array | undefined): Promise<ScanAnswer> => {
    const reading = readPage(from)
    reading.catch(() => {}) // Whoever stops early doesn't hear of it.
    return reading
  }
  let next: Promise<ScanAnswer> | undefined = page(header.start)
  let block: BackupPair[] = []
  let size = 0
  let isBegun = false
  while (next !== undefined) {
    const { pairs }: ScanAnswer = await next
    const last = pairs.at(-1)
    next = last && page(afterKey(last.key))
    if (!isBegun) yield encoder.begin(header) // After the first page: what fails at once fails before a byte is sent.
    isBegun = true
    for (const pair of pairs) {
      block.push(withValue(pair))
      size += recordBytes(withValue(pair))
      if (size < BLOCK_BYTES) continue
      yield encoder.data(block)
      block = []
      size = 0
    }
  }
  if (block.length > 0) yield encoder.data(block)
  yield encoder.end()
}

function withValue({ key, value, commitTs }: Pair): BackupPair {
  if (value === undefined) throw new TypeError('a backup needs values')
  return { key, value, commitTs }
}
