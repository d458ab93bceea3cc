/**
 * Every bound of the server that a client or an operator can meet, with its unit and its default, and every bound that
 * several folders share. A constant of one algorithm (a batch, a pause) stands beside that algorithm.
 * Nothing is imported here, because `perkv/client` imports this file and runs in browsers.
 */

/** The bounds that can be set, by flag or environment: limit-flags.ts. docs/flags.md lists them. */
export interface Limits {
  readonly keyBytesMax: number
  readonly valueBytesMax: number
  /** Body of one HTTP request. */
  readonly bodyBytesMax: number
  /** Keys, mutations, checks or ops in one request; keys that an interactive transaction writes or locks. */
  readonly requestKeysMax: number
  /** Pairs in one page of a scan. */
  readonly scanLimitMax: number
  /** A page of `GET /v1/kv` ends early, with a cursor, once its keys and values have this many bytes. */
  readonly pageBytesMax: number
  /** Other answers are refused beyond this. JSON may be six times as long, which still fits into one string by default. */
  readonly answerBytesMax: number

  /** Keys and values that one interactive transaction holds in memory; TiDB's `txn-total-size-limit`. */
  readonly txnBytesMax: number
  /** Keys and values that all open interactive transactions hold together. */
  readonly txnsBytesMax: number
  /** Open interactive transactions. */
  readonly txnsMax: number
  /** Locks that stand. All of them are in memory. */
  readonly locksMax: number

  readonly observersMax: number
  /** Cells of all observers that are claimed or delayed. As many that are parked, or have failed before, are kept in memory beside them. */
  readonly claimsMax: number
  readonly consumersMax: number
  /** Leases that are held, and those that have just ended. */
  readonly leasesMax: number
  /** Changes that the feed keeps in memory for streams that have caught up. */
  readonly feedBytesMax: number
  /** For how long a consumer or an open stream may hold collection back. */
  readonly holdMsMax: number

  /** Outcome that is stored for one request with an `Idempotency-Key`. */
  readonly outcomeBytesMax: number
  /** All stored outcomes together. One caller may have half of this. */
  readonly outcomesBytesMax: number

  /** Requests in flight. */
  readonly requestsMax: number
  /** Bodies of the requests in flight, counted as they arrive. */
  readonly bodiesBytesMax: number
  /** Answers that their clients have not taken yet. */
  readonly answersBytesMax: number
  /** NDJSON scans and backups in flight. */
  readonly streamsMax: number
  /** Streams of changes, and requests that wait for a change or a claim. They do not count as requests in flight. */
  readonly watchesMax: number
  /** Batches that wait for the disk. */
  readonly writeQueueMax: number
  /** Bytes of the batches that wait for the disk. */
  readonly writeQueueBytesMax: number
  /** How late the event loop may be, two times in a row; 0: any delay. */
  readonly loopDelayMsMax: number

  readonly connectionsMax: number
  /** Request line and headers. The default has room for a percent-encoded key of 4096 bytes and 20 KiB more. */
  readonly headerBytesMax: number
  /** Until the headers of a request have arrived. */
  readonly headerMsMax: number
  /** Until a whole request has arrived, except a restore; 0: any time. */
  readonly requestMsMax: number
  /** Between two requests on a connection. */
  readonly idleMsMax: number
  /** How long a client may take nothing of a long answer, or send nothing of a restore. */
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

  observersMax: 256,
  claimsMax: 100_000,
  consumersMax: 100,
  leasesMax: 10_000,
  feedBytesMax: 16 * MIB,
  holdMsMax: 86_400_000,

  outcomeBytesMax: MIB,
  outcomesBytesMax: 8192 * MIB,

  requestsMax: 10_000,
  bodiesBytesMax: 256 * MIB,
  answersBytesMax: 256 * MIB,
  streamsMax: 64,
  watchesMax: 10_000,
  writeQueueMax: 5000,
  writeQueueBytesMax: 64 * MIB,
  loopDelayMsMax: 1000,

  connectionsMax: 12_000,
  headerBytesMax: 32 * 1024,
  headerMsMax: 60_000,
  requestMsMax: 300_000,
  idleMsMax: 72_000,
  stalledMsMax: 60_000,
}

/** Cache of newest versions. */
export const CACHE_BYTES_DEFAULT = 64 * MIB

/** LevelDB's cache of uncompressed blocks. Its own default. */
export const BLOCK_CACHE_BYTES_DEFAULT = 8 * MIB
/** LevelDB's binding takes it as 32 bits. */
export const BLOCK_CACHE_BYTES_MAX = 2 ** 32 - 1

/** Values up to this many bytes travel in the lock and the write record; TiKV's `SHORT_VALUE_MAX_LEN`. */
export const SHORT_VALUE_BYTES_MAX = 255

/** A timer that is longer fires at once. */
export const TIMER_MS_MAX = 2 ** 31 - 1

// Turns of the event loop.

/** Long work of all requests together takes this much of one turn of the event loop; then other requests run. */
export const SLICE_MS = 10
/** Items of a list that are worked on before the clock is looked at; shorter lists never leave the turn. */
export const SLICE_ITEMS = 1024
/** A request with more keys takes its latches, and decides about them, in a turn of the event loop each. */
export const KEYS_PER_TURN = 4096
/** Reads of ranges and of many keys that run at once: more than LevelDB has threads for. What each has read so far is in memory. */
export const LONG_READS_MAX = 8

// Bodies and answers.

/** Digits of one number in a JSON body that is read in steps. */
export const JSON_WORD_BYTES_MAX = 1024
/** Lists and objects within each other in a body; requests need five. */
export const BODY_DEPTH_MAX = 32
/** Fields of one object in a body. */
export const BODY_FIELDS_MAX = 64
/** Values in a body for each of its keys, mutations, checks or ops: twice as many as the largest requests have. */
export const BODY_VALUES_PER_KEY = 32
/** Bodies up to this size are never refused to make room for others. The first bytes of every body count as small. */
export const SMALL_BODY_BYTES = 16 * 1024
/** A body that arrives more slowly than this stands still: it is the first to go when room is short. */
export const STALLED_BODY_BYTES_PER_S = 64 * 1024
/** Answers from this size on count until their clients have taken them. Shorter ones fit into the system's buffer of a connection. */
export const LONG_ANSWER_BYTES = 16 * 1024

export const SCAN_LIMIT_DEFAULT = 100
/** Pairs read at a time for streams, counts and backups. */
export const SCAN_PAGE = 1000
/** Bytes read at a time. Of each stream two such pages are in memory, however slowly its client takes them. */
export const STREAM_PAGE_BYTES = MIB
/** A feed has this time to find its first events, which decide about the status, before its head is sent. */
export const FEED_HEAD_MS = 1000
/** Entries of a page of leases, observers, consumers or pins. Parked cells have this default too. */
export const LIST_LIMIT_DEFAULT = 100
export const LIST_LIMIT_MAX = 10_000

// Transactions and locks.

/** Of versions. 69 years: with the timestamp that it counts from, the sum is a timestamp for a long time to come. */
export const TTL_MS_MAX = 2 ** 41

export const TXN_TTL_MS_DEFAULT = 60_000
export const TXN_TTL_MS_MAX = 24 * 60 * 60 * 1000
/** Scans of an interactive transaction whose cursors go on, the last ones. Each may hold a list of the writes at its beginning. */
export const TXN_SCANS_MAX = 16
/** How long a commit or rollback of a transaction that has ended is answered again. */
export const TXN_REMEMBERED_MS = 90_000
export const TXNS_REMEMBERED_MAX = 1_000_000
/** How long the outcome of a request with an `Idempotency-Key` is answered again. */
export const IDEMPOTENCY_MS = 10 * 60 * 1000

export const LOCK_TTL_MS_DEFAULT = 3000
/** How long a call waits for the locks of other transactions. */
export const LOCK_WAIT_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_MAX = 60 * 60 * 1000
/** Keys that one `delete_range` deletes, unless it says otherwise. */
export const DELETE_RANGE_LIMIT_DEFAULT = 1000
/** Of `timeout_ms`. */
export const TIMEOUT_MS_MAX = 10 * 60 * 1000
/** Entries of `get_lock_wait_info`. */
export const LOCK_WAITS_SHOWN_DEFAULT = 1000
export const LOCK_WAITS_SHOWN_MAX = 10_000
/**
 * Waits for locks, and bytes of them, that the server which finds deadlocks for all servers of a table remembers. Those beyond end by
 * their time-outs.
 */
export const SHARED_WAITS_MAX = 50_000
export const SHARED_WAIT_BYTES_MAX = 32 * MIB
/** How long `acquire_pessimistic_lock` waits for a lock; TiKV's `pessimistic-txn.wait-for-lock-timeout`. */
export const ACQUIRE_WAIT_MS_DEFAULT = 1000
export const MAX_RETRIES_DEFAULT = 10
export const MAX_RETRIES_MAX = 1000

// Observers.

/** Cells that one claim takes. */
export const CLAIM_LIMIT_MAX = 1000
export const CLAIM_WAIT_MS_MAX = 60_000
export const LEASE_MS_MIN = 100
export const LEASE_MS_MAX = 60 * 60 * 1000
/** Keys that one transaction writes, each counted once per observer of it. A mark costs about 900 bytes of memory until it is written. */
export const MARKS_MAX = 300_000
/** Acknowledgements of one transaction. */
export const ACKS_MAX = 1000
/** Consumers whose positions one transaction moves. */
export const POSITIONS_MAX = 100
/** A consumer holds collection back for no less. */
export const HOLD_MS_MIN = 1000
/** Error of a failed run. What is longer is cut. */
export const RUN_ERROR_BYTES_MAX = 1024
/** Longest wait before a cell is handed out again. */
export const BACKOFF_MS_MAX = 24 * 60 * 60 * 1000
export const ATTEMPTS_MAX = 1_000_000
export const DEPTH_MAX = 1_000_000

// Leases.

export const LEASE_TTL_MS_MIN = 100
export const LEASE_TTL_MS_MAX = 3_600_000
export const LEASE_WAIT_MS_MAX = 60_000
/** Leases that one transaction checks. */
export const LEASE_CHECKS_MAX = 1000
/** Keys that are attached to one lease. */
export const ATTACHED_MAX = 10_000

// The change feed and watches.

/** Prefixes and keys of one feed. */
export const FEED_RANGES_MAX = 100
export const FEED_LIMIT_DEFAULT = 100
export const FEED_LIMIT_MAX = 10_000
export const FEED_WAIT_MS_MAX = 60_000
export const HEARTBEAT_MS_DEFAULT = 5000
export const HEARTBEAT_MS_MIN = 100
export const HEARTBEAT_MS_MAX = 60_000
/** How long a GET waits for another version of its key. */
export const WATCH_WAIT_MS_MAX = 60_000
/** How long a request goes on to wait for a change when its client has ended its side of the connection. */
export const ENDED_WAIT_MS = 1000

// Old versions and backups.

/** TiDB's `tidb_gc_life_time`. */
export const GC_LIFE_TIME_MS_DEFAULT = 10 * 60 * 1000
/** An open transaction, or a lock whose transaction lives, holds collection back for no longer than this; TiDB's `tidb_gc_max_wait_time`. */
export const TXN_HOLDS_MS_MAX = 24 * 60 * 60 * 1000
export const PIN_TTL_MS_DEFAULT = 60 * 60 * 1000
export const PIN_TTL_MS_MAX = 30 * 24 * 60 * 60 * 1000
export const PINS_MAX = 1000
/** How long a backup, or a dump, waits for the locks of one transaction unless told otherwise. */
export const BACKUP_LOCK_WAIT_MS = 60_000
/** A restore moves the oracle past the backup's ts, but no further than this past the clock. */
export const RESTORE_AHEAD_MS_MAX = 24 * 60 * 60 * 1000

// Tokens.

export const TOKEN_LENGTH_MIN = 16
export const TOKEN_LENGTH_MAX = 512

// Time.

/** End of the clock's range. Timestamps last until May 2109; the last months are left to those that run ahead of the clock. */
export const CLOCK_MS_MAX = Date.UTC(2109, 0, 1)
/** A start under a clock that is further ahead of the last run counts no more than this as time that the server was down. */
export const DOWNTIME_MS_MAX = 24 * 60 * 60 * 1000
/**
 * The oracle's mark is saved this far ahead of the clock, so that a restart never hands out a timestamp again. Where the mark
 * cannot be saved, timestamps last for this long.
 */
export const MARK_AHEAD_MS = 3000
export const TSO_COUNT_MAX = 1_000_000
/** How far `tso` hands out timestamps ahead of the clock. */
export const TSO_AHEAD_MS_MAX = 5000
/** The same for several timestamps at once. The difference is left to single ones. */
export const TSO_BULK_AHEAD_MS_MAX = 4000
/** How long `tso` waits for the clock before it answers `overloaded`. */
export const TSO_WAIT_MS_MAX = 3000
/** How far ahead of the clock a client may write. */
export const WRITE_AHEAD_MS_MAX = 60_000

// The process and its files.

/** Connections that wait to be accepted; the system has a limit of its own (`net.core.somaxconn`). */
export const LISTEN_BACKLOG = 4096
/** `Retry-After` of a request that was shed. */
export const RETRY_AFTER_S = 1
/** A shutdown waits this long for requests in flight before it cuts them off. */
export const SHUTDOWN_GRACE_MS = 8_000
/** Tables of a larger database are verified in the background instead of before a start. */
export const START_VERIFY_BYTES_MAX = 256 * MIB
/** From the start to the first verification of all tables. */
export const SCRUB_FIRST_MS = 10_000
/** From one verification of all tables to the next. */
export const SCRUB_EVERY_MS = 24 * 60 * 60 * 1000
/** Between two tables of 2 MiB: some 40 MB/s. */
export const SCRUB_PAUSE_MS = 50
/** The files of the open database are looked at before an acknowledgement, but no more often than this. */
export const FILES_LOOK_MS = 10
/** And this often where nothing is written. */
export const FILES_LOOK_EVERY_MS = 1000
