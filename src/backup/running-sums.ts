import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type { Timestamp } from '../timestamp.js'
import { type BackupEntry, BLOCK_HEAD_BYTES, BLOCK_TYPE_BYTE, type BlockType } from './backup-format.js'

/**
 * Running totals and checksums of a backup. Reader and writer keep the same sums, so a writer can continue where a reader
 * stopped.
 */
export class RunningSums {
  /** Each block's checksum continues the one before it, so a missing or misplaced block is detected. */
  #crc = 0
  readonly #sha256 = createHash('sha256')
  /** Bytes of the file so far. */
  length = 0
  pairs = 0
  /** Bytes of keys and values. */
  bytes = 0
  lastKey: Uint8Array | undefined
  /** Of the last entry. */
  lastTs: Timestamp = 0
  isClosed = false

  preamble(bytes: Buffer): void {
    this.#crc = crc32(bytes)
    this.#add(bytes)
  }

  headOf(type: BlockType, body: Buffer): Buffer {
    const head = Buffer.allocUnsafe(BLOCK_HEAD_BYTES)
    head[0] = BLOCK_TYPE_BYTE[type]
    head.writeUInt32BE(body.length, 1)
    head.writeUInt32BE(crc32(body, crc32(head.subarray(0, 5), this.#crc)), 5)
    return head
  }

  block(head: Buffer, body: Buffer): void {
    this.#crc = head.readUInt32BE(5)
    this.#add(head)
    this.#add(body)
  }

  counted(pairs: readonly BackupEntry[]): void {
    this.pairs += pairs.length
    for (const { key, value } of pairs) this.bytes += key.length + (value?.length ?? 0)
    this.lastKey = pairs.at(-1)?.key
    this.lastTs = pairs.at(-1)?.commitTs ?? 0
  }

  /** SHA-256 of the file so far. Closes the sums: nothing can be added afterwards. */
  digest(): string {
    this.isClosed = true
    return this.#sha256.digest('hex')
  }

  #add(bytes: Buffer): void {
    this.#sha256.update(bytes)
    this.length += bytes.length
  }
}
