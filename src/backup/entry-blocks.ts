import type { BackupEncoder } from './backup-encoder.js'
import { type BackupEntry, BLOCK_BYTES } from './backup-format.js'
import { recordBytes } from './pair-records.js'

/** Yields the blocks of entries. */
export async function* entryBlocks(
  encoder: BackupEncoder,
  entries: AsyncIterable<BackupEntry> | Iterable<BackupEntry>,
): AsyncGenerator<Buffer, void, undefined> {
  let block: BackupEntry[] = []
  let size = 0
  for await (const entry of entries) {
    block.push(entry)
    size += recordBytes(entry)
    if (size < BLOCK_BYTES) continue
    yield encoder.data(block)
    block = []
    size = 0
  }
  if (block.length > 0) yield encoder.data(block)
}
