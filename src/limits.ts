/** Every bound of the server in one place. Those of `Limits` can be set by flag or environment (limit-flags.ts); the rest is fixed. */
export interface Limits {
  readonly keyBytesMax: number
  readonly valueBytesMax: number
  /** Of one HTTP request. */
  readonly bodyBytesMax: number
  /** Keys, mutations, checks or ops in one request; keys that an interactive transaction writes or locks. */
  readonly requestKeysMax: number
  /** Pairs in one page of a scan. */
  readonly scanLimitMax: number
  /** A page of `GET /v1/kv` ends early, with a cursor, once its keys and values have this many bytes. */
  readonly pageBytesMax: number
  /** Other answers are refused beyond this: as JSON, six times as long at worst, the default still fits into one string. */
  readonly answerBytesMax: number

  /** Of keys and values that an interactive transaction holds in memory; TiDB's `txn-total-size-limit`. */
  readonly txnBytesMax: number
  /** The same, of all that are open. */
  readonly txnsBytesMax: number
  /** Interactive transactions that are open. */
  readonly txnsMax: number
  /** Locks that stand: all of them are in memory. */
  readonly locksMax: number

  /** Of the outcome that is stored for one request with an `Idempotency-Key`. */
  readonly outcomeBytesMax: number
  /** The same, of all that are stored; of one caller half as much. */
  readonly outcomesBytesMax: number

  /** Requests in flight. */
  readonly requestsMax: number
  /** Of the bodies of requests in flight, as far as they have arrived. */
  readonly bodiesBytesMax: number
  /** Of answers that their clients have not taken yet. */
  readonly answersBytesMax: number
  /** NDJSON scans and backups in flight. */
  readonly streamsMax: number
  /** Batches that wait for the disk. */
  readonly writeQueueMax: number
  readonly writeQueueBytesMax: number
  /** How late the event loop may be, over and over; 0: however late. */
  readonly loopDelayMsMax: number

  readonly connectionsMax: number
  /** Request line and headers: the default has room for a key of 4096 bytes, percent-encoded, and more beside it. */
  readonly headerBytesMax: number
  /** Until the headers of a request have arrived. */
  readonly headerMsMax: number
  /** Until all of a request has arrived, but of a restore; 0: however long. */
  readonly requestMsMax: number
  /** Of a connection between requests. */
  readonly idleMsMax: number
  /** Of a client that takes nothing of a long answer, or sends nothing of a restore. */
  readonly stalledMsMax: number
}

const MIB = 1024 * 1024

export const DEFAULT_LIMITS: Limits = {
  keyBytesMax: 4096,
  valueBytesMax: MIB,
  bodyBytesMax: 32 * MIB,
  requestKeysMax: 100_000,
  scanLimitMax: 10_000,
  pageBytesMax: 8 * MIB,
  answerBytesMax: 64 * MIB,

  txnBytesMax: 100 * MIB,
  txnsBytesMax: 512 * MIB,
  txnsMax: 10_000,
  locksMax: 1_000_000,

  outcomeBytesMax: MIB,
  outcomesBytesMax: 8192 * MIB,

  requestsMax: 10_000,
  bodiesBytesMax: 256 * MIB,
  answersBytesMax: 256 * MIB,
  streamsMax: 64,
  writeQueueMax: 5000,
  writeQueueBytesMax: 64 * MIB,
  loopDelayMsMax: 1000,

  connectionsMax: 10_000,
  headerBytesMax: 32 * 1024,
  headerMsMax: 60_000,
  requestMsMax: 300_000,
  idleMsMax: 72_000,
  stalledMsMax: 60_000,
}

/** Of the cache of newest versions. */
export const CACHE_BYTES_DEFAULT = 64 * MIB

/** Values up to this many bytes travel in the lock and the write record; TiKV's `SHORT_VALUE_MAX_LEN`. */
export const SHORT_VALUE_BYTES_MAX = 255

/** Long work of all requests together takes this much of one turn of the event loop; then others run. */
export const SLICE_MS = 10
/** Items of a list that are worked on before the clock is looked at; shorter lists never leave the turn. */
export const SLICE_ITEMS = 1024
/** Of a request: taking the latches of more, and deciding about them, has a turn of the event loop each. */
export const KEYS_PER_TURN = 4096
/** Shorter JSON bodies are left to `JSON.parse`, which cannot be interrupted. */
export const JSON_AT_ONCE_BYTES_MAX = 256 * 1024
/** Values of a body that are read before the clock is looked at, and bytes of text and byte strings. */
export const BODY_STEP_VALUES = 8192
export const BODY_STEP_BYTES = 256 * 1024
/** Of an answer that is encoded in one turn; shorter ones are encoded at once, longer ones as they are taken. */
export const ANSWER_STEP_BYTES = 256 * 1024
/** Of one number in a JSON body that is read in steps. */
export const JSON_WORD_BYTES_MAX = 1024
/** Of lists and objects within each other in a body; requests need five. */
export const BODY_DEPTH_MAX = 32
/** Of one object in a body. */
export const BODY_FIELDS_MAX = 64
/** Values in a body for each of its keys, mutations, checks or ops: twice as many as the largest requests have. */
export const BODY_VALUES_PER_KEY = 32

export const SCAN_LIMIT_DEFAULT = 100
/** Pairs read at a time for streams, counts and backups. */
export const SCAN_PAGE = 1000
/** The same in bytes: of each stream two of these are in memory, however slowly it is taken. */
export const STREAM_PAGE_BYTES = MIB
/** Reads of ranges and of many keys that run at once: more than LevelDB has threads for, and what each has read so far is in memory. */
export const LONG_READS_MAX = 8

/** Bodies up to this size are never refused for the sake of others. The first bytes of any body are as good as small. */
export const SMALL_BODY_BYTES = 16 * 1024
/** A body that arrives more slowly than this stands still: it is the first to go when room is short. */
export const STALLED_BODY_BYTES_PER_S = 64 * 1024

export const TXN_TTL_MS_DEFAULT = 60_000
export const TXN_TTL_MS_MAX = 24 * 60 * 60 * 1000
/** How long a commit or rollback of a transaction that has ended is answered again, and of how many. */
export const TXN_REMEMBERED_MS = 90_000
export const TXNS_REMEMBERED_MAX = 1_000_000

/** TiDB's `tidb_gc_life_time`. */
export const GC_LIFE_TIME_MS_DEFAULT = 10 * 60 * 1000
/** Of a pinned snapshot. */
export const PIN_TTL_MS_DEFAULT = 60 * 60 * 1000
export const PIN_TTL_MS_MAX = 30 * 24 * 60 * 60 * 1000
export const PINS_MAX = 1000

export const TSO_COUNT_MAX = 1_000_000
export const LOCK_TTL_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_MAX = 60 * 60 * 1000
export const MAX_RETRIES_DEFAULT = 10
export const MAX_RETRIES_MAX = 1000

/** Connections that wait to be accepted; the system has a limit of its own (`net.core.somaxconn`). */
export const LISTEN_BACKLOG = 4096
/** What `Retry-After` says of a request that was shed. */
export const RETRY_AFTER_S = 1
/** What a shutdown waits for requests in flight before it cuts them off. */
export const SHUTDOWN_GRACE_MS = 8_000

/** Tables that are verified before a start; of a larger database they are verified in the background. */
export const START_VERIFY_BYTES_MAX = 256 * 1024 * 1024
/** From the start to the first verification of all tables, and from one to the next. */
export const SCRUB_FIRST_MS = 10_000
export const SCRUB_EVERY_MS = 24 * 60 * 60 * 1000
/** Between two tables of 2 MiB: some 40 MB/s. */
export const SCRUB_PAUSE_MS = 50
/** How far `tso` hands out timestamps ahead of the clock; of several at once less, which leaves room for single ones. */
export const TSO_AHEAD_MS_MAX = 5000
export const TSO_BULK_AHEAD_MS_MAX = 4000
/** How long `tso` waits for the clock before it answers `overloaded`. */
export const TSO_WAIT_MS_MAX = 3000
/** How far ahead of the clock a client may write. */
export const WRITE_AHEAD_MS_MAX = 60_000
/** The files of the open database are looked at this often: before an acknowledgement, and where nothing is written. */
export const FILES_LOOK_MS = 10
export const FILES_LOOK_EVERY_MS = 1000
/** How long a backup waits for one transaction's locks, unless told otherwise. */
export const BACKUP_LOCK_WAIT_MS = 60_000
/** A restore moves the oracle past the backup's ts, but no further than this past the clock. */
export const RESTORE_AHEAD_MS_MAX = 24 * 60 * 60 * 1000
