import type { Timestamp } from '../timestamp.js'

/** What a backup file is made of; docs/backup-format.md has every byte. */
export const BACKUP_MAGIC = 'PerKVbak'
export const BACKUP_VERSION = 1
/** Magic and version. */
export const PREAMBLE_BYTES = 12
/** Type, length, checksum. */
export const BLOCK_HEAD_BYTES = 9
/** A data block ends with the pair that brings it to this many bytes. */
export const BLOCK_BYTES = 256 * 1024
/** No server accepts longer keys and values, and no header or end is longer: a longer block is damaged. */
export const BLOCK_BYTES_MAX = 257 * 1024 * 1024

export type BlockType = 'header' | 'data' | 'end'
export const BLOCK_TYPE_BYTE: Readonly<Record<BlockType, number>> = { header: 0x48, data: 0x44, end: 0x45 } // H, D, E

export interface BackupHeader {
  /** Of the store and `ts` together: two backups of one id hold the same pairs. 32 hex digits. */
  readonly id: string
  /** The pairs are those that a read at it sees. */
  readonly ts: Timestamp
  /** Of the server that wrote it. */
  readonly perkv: string
  /** The pairs before this key are left out: a part that continues another, and no backup by itself. */
  readonly start?: Uint8Array | undefined
}

export interface BackupPair {
  readonly key: Uint8Array
  readonly value: Uint8Array
  readonly commitTs: Timestamp
}

export interface BackupTotals {
  readonly pairs: number
  /** Of keys and values. */
  readonly bytes: number
}

/** Bytes that are not a whole backup of a version that can be read. The message says what and where, in one line. */
export class BackupError extends Error {
  override readonly name = 'BackupError'
  readonly code = 'backup_unusable'
  constructor(
    /** `cut_off`: what is there is good, but it is not all. `too_large`: the receiver's limits are lower. */
    readonly reason: 'damaged' | 'cut_off' | 'too_large' | 'unsupported',
    message: string,
  ) {
    super(message)
  }
}
