/** Every bound of the server in one place. Those of `Limits` can be set by flag or environment; the rest is fixed. */
export interface Limits {
  readonly keyBytesMax: number
  readonly valueBytesMax: number
  /** Of one HTTP request. */
  readonly bodyBytesMax: number
}

export const DEFAULT_LIMITS: Limits = {
  keyBytesMax: 4096,
  valueBytesMax: 1024 * 1024,
  bodyBytesMax: 32 * 1024 * 1024,
}

/** Of the cache of newest versions. */
export const CACHE_BYTES_DEFAULT = 64 * 1024 * 1024

/** Values up to this many bytes travel in the lock and the write record; TiKV's `SHORT_VALUE_MAX_LEN`. */
export const SHORT_VALUE_BYTES_MAX = 255

/** Keys, mutations, checks or ops in one request. */
export const REQUEST_KEYS_MAX = 100_000

export const SCAN_LIMIT_DEFAULT = 100
export const SCAN_LIMIT_MAX = 10_000
/** Pairs read at a time for streams, counts and backups. */
export const SCAN_PAGE = 1000
/** A page of `GET /v1/kv` ends early, with a cursor, once its keys and values have this many bytes. */
export const PAGE_BYTES_MAX = 8 * 1024 * 1024
/** Other answers are refused beyond this: as JSON, six times as long at worst, they still fit into one string. */
export const ANSWER_BYTES_MAX = 64 * 1024 * 1024

/** Of keys and values that an interactive transaction holds in memory; TiDB's `txn-total-size-limit`. */
export const TXN_BYTES_MAX = 100 * 1024 * 1024
export const TXN_TTL_MS_DEFAULT = 60_000
export const TXN_TTL_MS_MAX = 24 * 60 * 60 * 1000
/** How long a commit or rollback of a transaction that has ended is answered again. */
export const TXN_REMEMBERED_MS = 90_000

export const TSO_COUNT_MAX = 1_000_000
export const LOCK_TTL_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_MAX = 60 * 60 * 1000
export const MAX_RETRIES_DEFAULT = 10
export const MAX_RETRIES_MAX = 1000

/** Request line and headers: a key of 4096 bytes, percent-encoded, and room beside it. */
export const HEADER_BYTES_MAX = 32 * 1024
/** What a shutdown waits for requests in flight before it cuts them off. */
export const SHUTDOWN_GRACE_MS = 8_000

/** How long a backup waits for one transaction's locks, unless told otherwise. */
export const BACKUP_LOCK_WAIT_MS = 60_000
/** A restore moves the oracle past the backup's ts, but no further than this past the clock. */
export const RESTORE_AHEAD_MS_MAX = 24 * 60 * 60 * 1000
