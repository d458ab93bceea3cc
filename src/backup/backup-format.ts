import type { Timestamp } from '../timestamp.js'

/** docs/backup-format.md describes every byte of a backup. */
export const BACKUP_MAGIC = 'PerKVbak'
export const BACKUP_VERSION = 3
export const INCREMENT_VERSION = 5
/** A full backup from before pairs could expire. It can be read, and so can 2 and 4: increments with the newest version of each key. */
export const OLD_BACKUP_VERSION = 1
export const PREAMBLE_BYTES = 12
export const BLOCK_HEAD_BYTES = 9
/** A data block ends with the pair that brings it to this many bytes. */
export const BLOCK_BYTES = 256 * 1024
/** A longer block is damaged: no server accepts a key and value of this length, and headers and ends are short. */
export const BLOCK_BYTES_MAX = 257 * 1024 * 1024

export type BlockType = 'header' | 'data' | 'end'
export const BLOCK_TYPE_BYTE: Readonly<Record<BlockType, number>> = { header: 0x48, data: 0x44, end: 0x45 } // H, D, E

export interface BackupHeader {
  /** 32 hex digits made from the store and `ts`. Two backups with one id hold the same pairs. */
  readonly id: string
  /** Timestamp of the snapshot: the backup holds the pairs that a read at `ts` sees. */
  readonly ts: Timestamp
  /** Version of the server that wrote the backup. */
  readonly perkv: string
  /** Pairs before this key are left out. Such a part continues another backup and is not a backup by itself. */
  readonly start?: Uint8Array | undefined
  /** 32 hex digits that identify the store. Backups of PerKV 0.1 have none, and no increments. */
  readonly store?: string | undefined
  /** Present in an increment, which holds the versions above `base.ts`. */
  readonly base?: BackupBase | undefined
  /** Ranges that were deleted: the increment's base, and the increment itself at or below `ts`, have lost all versions there. */
  readonly removed?: readonly RemovedRange[] | undefined
}

export interface BackupBase {
  readonly id: string
  readonly ts: Timestamp
}

/** `[start, end)`, removed by a delete_range. */
export interface RemovedRange {
  readonly start: Uint8Array
  readonly end: Uint8Array
  readonly ts: Timestamp
}

export interface BackupEntry {
  readonly key: Uint8Array
  /** Absent: the key was deleted. Only in increments. */
  readonly value?: Uint8Array | undefined
  readonly commitTs: Timestamp
  /** Absent: the version does not expire. */
  readonly expireTs?: Timestamp | undefined
}

export type BackupPair = BackupEntry & { readonly value: Uint8Array }

export interface BackupTotals {
  readonly pairs: number
  /** Bytes of keys and values. */
  readonly bytes: number
}

/** The bytes are not a complete backup of a supported version. The message names the fault and its place in one line. */
export class BackupError extends Error {
  override readonly name = 'BackupError'
  readonly code = 'backup_unusable'
  constructor(
    /** `cut_off`: the bytes so far are intact, but the end is missing. `too_large`: a limit of the receiver is lower. */
    readonly reason: 'damaged' | 'cut_off' | 'too_large' | 'unsupported',
    message: string,
  ) {
    super(message)
  }
}
