import { createHmac } from 'node:crypto'
import { afterKey } from '../bytes/key-range.js'
import type { Pair, ScanAnswer } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import { BackupEncoder } from './backup-encoder.js'
import type { BackupHeader, BackupPair } from './backup-format.js'

/** @param from start of the page; undefined: the first key. */
export type ReadPage = (from: Uint8Array | undefined) => Promise<ScanAnswer>

/** Id of a store in its backups: only backups of one store form a chain. @param secret of the store. */
export function storeId(secret: Uint8Array): string {
  return createHmac('sha256', secret).update('store of backups').digest('hex').slice(0, 32)
}

/** Unique id of one snapshot of one store. @param secret of the store. */
export function backupId(secret: Uint8Array, ts: Timestamp): string {
  return createHmac('sha256', secret).update(`backup at ${ts}`).digest('hex').slice(0, 32)
}

/** Yields a backup block by block. Reads one page ahead of the consumer, and no more. */
export async function* backupStream(header: BackupHeader, readPage: ReadPage): AsyncGenerator<Buffer, void, undefined> {
  const encoder = new BackupEncoder()
  const page = (from: Uint8Array | undefined): Promise<ScanAnswer> => {
    const reading = readPage(from)
    reading.catch(() => {}) // A consumer that stops early never awaits it.
    return reading
  }
  let next: Promise<ScanAnswer> | undefined = page(header.start)
  let isBegun = false
  while (next !== undefined) {
    const { pairs }: ScanAnswer = await next
    const last = pairs.at(-1)
    next = last && page(afterKey(last.key))
    if (!isBegun) yield encoder.begin(header) // After the first page, so that an early failure precedes the first byte.
    isBegun = true
    for (const pair of pairs) {
      const block = encoder.add(withValue(pair))
      if (block !== undefined) yield block
    }
  }
  yield encoder.end()
}

function withValue({ key, value, commitTs, expireTs }: Pair): BackupPair {
  if (value === undefined) throw new TypeError('a backup needs values')
  return { key, value, commitTs, expireTs }
}
