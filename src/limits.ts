/**
 * Every bound of the server that a client or an operator can meet, with its unit and its default, and every bound that several
 * folders share. A constant of one algorithm (a batch, a pause) is defined next to that algorithm.
 * Nothing is imported here, because `perkv/client` imports this file and runs in browsers.
 */

/** The bounds that can be set, by flag or environment: limit-flags.ts. docs/flags.md lists them. */
export interface Limits {
  readonly keyBytesMax: number
  readonly valueBytesMax: number
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
  readonly txnsMax: number
  /** All locks are in memory. */
  readonly locksMax: number

  readonly observersMax: number
  /**
   * Claimed or delayed cells of all observers. As many parked cells, and cells that have failed before, are kept in memory
   * besides.
   */
  readonly claimsMax: number
  readonly consumersMax: number
  /** Leases that are held, and those that have just ended. */
  readonly leasesMax: number
  /** Changes that the feed keeps in memory for streams that have caught up. */
  readonly feedBytesMax: number
  /** Longest time for which a consumer or an open stream may hold collection back. */
  readonly holdMsMax: number

  /** Stored outcome of one request with an `Idempotency-Key`. */
  readonly outcomeBytesMax: number
  /** All stored outcomes together. One caller may have half of this. */
  readonly outcomesBytesMax: number

  readonly requestsMax: number
  /** Bodies of the requests in flight, counted as they arrive. */
  readonly bodiesBytesMax: number
  /** Answers that their clients have not taken yet. */
  readonly answersBytesMax: number
  /** NDJSON scans and backups in flight. */
  readonly streamsMax: number
  /** Streams of changes, and requests that wait for a change or a claim. They do not count as requests in flight. */
  readonly watchesMax: number
  readonly writeQueueMax: number
  readonly writeQueueBytesMax: number
  /** Longest delay of the event loop, two times in a row; 0: any delay. */
  readonly loopDelayMsMax: number

  readonly connectionsMax: number
  /** Request line and headers. The default has room for a percent-encoded key of 4096 bytes and 20 KiB more. */
  readonly headerBytesMax: number
  /** From the beginning of a request to the end of its headers. */
  readonly headerMsMax: number
  /** From the beginning to the end of a request, except a restore; 0: any time. */
  readonly requestMsMax: number
  readonly idleMsMax: number
  /** Longest time for which a client may take nothing of a long answer, or send nothing of a restore. */
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

export const CACHE_BYTES_DEFAULT = 64 * MIB

/** LevelDB's own default. */
export const BLOCK_CACHE_BYTES_DEFAULT = 8 * MIB
/** LevelDB's binding takes the size as 32 bits. */
export const BLOCK_CACHE_BYTES_MAX = 2 ** 32 - 1

/** Values up to this many bytes travel in the lock and the write record; TiKV's `SHORT_VALUE_MAX_LEN`. */
export const SHORT_VALUE_BYTES_MAX = 255

/** A longer timer fires at once. */
export const TIMER_MS_MAX = 2 ** 31 - 1

// Turns of the event loop.

/** Long work of all requests together takes this much of one turn of the event loop; then other requests run. */
export const SLICE_MS = 10
/** Items of a list processed between two looks at the clock; shorter lists never leave the turn. */
export const SLICE_ITEMS = 1024
/** With more keys, a request takes its latches, and decides about them, in one turn of the event loop each. */
export const KEYS_PER_TURN = 4096
/** Concurrent reads of ranges and of many keys: more than LevelDB has threads for. The pairs read so far are in memory. */
export const LONG_READS_MAX = 8

// Bodies and answers.

/** Requests that one connection of HTTP/2 has at once: RFC 9113 asks for no fewer, and clients rely on it. */
export const HTTP2_STREAMS_MAX = 100

/** Longest number or literal in a JSON body that is read in steps. */
export const JSON_WORD_BYTES_MAX = 1024
/** Nesting of lists and objects in a body; requests need five levels. */
export const BODY_DEPTH_MAX = 32
export const BODY_FIELDS_MAX = 64
/** Values in a body for each of its keys, mutations, checks or ops: twice as many as the largest requests have. */
export const BODY_VALUES_PER_KEY = 32
/** Bodies up to this size are never refused to make room for others. The first bytes of every body count as small. */
export const SMALL_BODY_BYTES = 16 * 1024
/** A body that arrives more slowly counts as stalled, and is refused first when room is short. */
export const STALLED_BODY_BYTES_PER_S = 64 * 1024
/** Shorter answers fit into the system's buffer of a connection. Longer ones count until their clients have taken them. */
export const LONG_ANSWER_BYTES = 16 * 1024

export const SCAN_LIMIT_DEFAULT = 100
export const SCAN_PAGE = 1000
/** Bytes per read. Each stream has two such pages in memory, however slowly its client takes them. */
export const STREAM_PAGE_BYTES = MIB
/** Longest wait for the first events of a feed, which decide about the status, before its head is sent. */
export const FEED_HEAD_MS = 1000
/** Entries of a page of leases, observers, consumers or pins, and of parked cells. */
export const LIST_LIMIT_DEFAULT = 100
export const LIST_LIMIT_MAX = 10_000

// Transactions and locks.

/** Time to live of versions: 69 years. Its sum with a present timestamp is still a timestamp. */
export const TTL_MS_MAX = 2 ** 41

export const TXN_TTL_MS_DEFAULT = 60_000
export const TXN_TTL_MS_MAX = 24 * 60 * 60 * 1000
/**
 * The last scans of an interactive transaction whose cursors can be continued. Each may hold a list of the writes at its
 * beginning.
 */
export const TXN_SCANS_MAX = 16
export const TXN_REMEMBERED_MS = 90_000
export const TXNS_REMEMBERED_MAX = 1_000_000
/** How long the outcome of a request with an `Idempotency-Key` is answered again. */
export const IDEMPOTENCY_MS = 10 * 60 * 1000

export const LOCK_TTL_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_DEFAULT = 3000
export const LOCK_WAIT_MS_MAX = 60 * 60 * 1000
export const DELETE_RANGE_LIMIT_DEFAULT = 1000
export const TIMEOUT_MS_MAX = 10 * 60 * 1000
export const LOCK_WAITS_SHOWN_DEFAULT = 1000
export const LOCK_WAITS_SHOWN_MAX = 10_000
/**
 * Waits for locks, and their bytes, that the server which finds deadlocks for all servers of a table remembers. Further waits
 * end by their time-outs.
 */
export const SHARED_WAITS_MAX = 50_000
export const SHARED_WAIT_BYTES_MAX = 32 * MIB
/** How long `acquire_pessimistic_lock` waits for a lock; TiKV's `pessimistic-txn.wait-for-lock-timeout`. */
export const ACQUIRE_WAIT_MS_DEFAULT = 1000
export const MAX_RETRIES_DEFAULT = 10
export const MAX_RETRIES_MAX = 1000

// Observers.

export const CLAIM_LIMIT_MAX = 1000
export const CLAIM_WAIT_MS_MAX = 60_000
export const LEASE_MS_MIN = 100
export const LEASE_MS_MAX = 60 * 60 * 1000
/**
 * Keys that one transaction writes, each counted once per observer of it. A mark costs about 900 bytes of memory until it is
 * written.
 */
export const MARKS_MAX = 300_000
export const ACKS_MAX = 1000
export const POSITIONS_MAX = 100
export const HOLD_MS_MIN = 1000
/** Errors of failed runs are cut to this length. */
export const RUN_ERROR_BYTES_MAX = 1024
export const BACKOFF_MS_MAX = 24 * 60 * 60 * 1000
export const ATTEMPTS_MAX = 1_000_000
export const DEPTH_MAX = 1_000_000

// Leases.

export const LEASE_TTL_MS_MIN = 100
export const LEASE_TTL_MS_MAX = 3_600_000
export const LEASE_WAIT_MS_MAX = 60_000
export const LEASE_CHECKS_MAX = 1000
export const ATTACHED_MAX = 10_000

// The change feed and watches.

export const FEED_RANGES_MAX = 100
export const FEED_LIMIT_DEFAULT = 100
export const FEED_LIMIT_MAX = 10_000
export const FEED_WAIT_MS_MAX = 60_000
export const HEARTBEAT_MS_DEFAULT = 5000
export const HEARTBEAT_MS_MIN = 100
export const HEARTBEAT_MS_MAX = 60_000
export const WATCH_WAIT_MS_MAX = 60_000
/** How long a request still waits for a change after its client has ended its side of the connection. */
export const ENDED_WAIT_MS = 1000

// Webhooks.

/** Transactions in one request; a request ends early with the transaction that reaches `WEBHOOK_BYTES`. */
export const WEBHOOK_BATCH_DEFAULT = 100
export const WEBHOOK_BYTES = MIB
export const WEBHOOK_ATTEMPTS_DEFAULT = 64
export const WEBHOOK_BACKOFF_MS_DEFAULT = 1000
export const WEBHOOK_BACKOFF_MAX_MS_DEFAULT = 600_000
export const WEBHOOK_TIMEOUT_MS_DEFAULT = 10_000
export const WEBHOOK_TIMEOUT_MS_MIN = 100
export const WEBHOOK_TIMEOUT_MS_MAX = 60_000
/** Longest wait that a target may ask for. */
export const RETRY_AFTER_MS_MAX = 60 * 60 * 1000
/** Errors of failed deliveries are cut to this length. */
export const DELIVERY_ERROR_BYTES_MAX = 256

// KV Connect. The protocol has these bounds, and its clients know them.

export const KV_KEY_BYTES_MAX = 2048
export const KV_VALUE_BYTES_MAX = 65_536
export const KV_RANGES_MAX = 10
/** Entries of all ranges of one read together. */
export const KV_READ_ENTRIES_MAX = 1000
export const KV_CHECKS_MAX = 100
export const KV_MUTATIONS_MAX = 1000
/** Keys and values of one atomic write. */
export const KV_WRITE_BYTES_MAX = 819_200
export const KV_WATCH_KEYS_MAX = 10
/** Room for a write of `KV_WRITE_BYTES_MAX`, with what its fields take. */
export const KV_BODY_BYTES_MAX = MIB
/** Name of a database. */
export const KV_NAME_LENGTH_MAX = 64
/** Body of an exchange of metadata, which is parsed at once. Clients send some 30 bytes. */
export const KV_METADATA_BYTES_MAX = 4096
/** How long a client may use the answer to its exchange of metadata. */
export const KV_METADATA_MS = 24 * 60 * 60 * 1000

// Old versions and backups.

/** TiDB's `tidb_gc_life_time`. */
export const GC_LIFE_TIME_MS_DEFAULT = 10 * 60 * 1000
/**
 * An open transaction, or a lock of a living transaction, holds collection back for no longer than this; TiDB's
 * `tidb_gc_max_wait_time`.
 */
export const TXN_HOLDS_MS_MAX = 24 * 60 * 60 * 1000
export const PIN_TTL_MS_DEFAULT = 60 * 60 * 1000
export const PIN_TTL_MS_MAX = 30 * 24 * 60 * 60 * 1000
export const PINS_MAX = 1000
/** Default time for which a backup or a dump waits for the locks of one transaction. */
export const BACKUP_LOCK_WAIT_MS = 60_000
/** A restore moves the oracle past the backup's ts, but no further than this past the clock. */
export const RESTORE_AHEAD_MS_MAX = 24 * 60 * 60 * 1000

// Tokens.

export const TOKEN_LENGTH_MIN = 16
export const TOKEN_LENGTH_MAX = 512

// Time.

/**
 * End of the clock's range. Timestamps last until May 2109; the last months are left to timestamps that run ahead of the clock.
 */
export const CLOCK_MS_MAX = Date.UTC(2109, 0, 1)
/** After a start, a clock that is further ahead of the last run counts no more than this as downtime. */
export const DOWNTIME_MS_MAX = 24 * 60 * 60 * 1000
/**
 * The oracle's mark is saved this far ahead of the clock, so that a restart never hands out a timestamp again. When the mark
 * cannot be saved, timestamps last for this long.
 */
export const MARK_AHEAD_MS = 3000
/** A transaction of more bytes commits in two phases, in several requests, where the table changes rows together. */
export const JOINT_BYTES_MAX = MIB
/** Calls of a shared table are repeated this long. Then what needs them is 503. */
export const TABLE_WAIT_MS_MAX = 10_000
export const TSO_COUNT_MAX = 1_000_000
/** How far `tso` hands out timestamps ahead of the clock. */
export const TSO_AHEAD_MS_MAX = 5000
/** As `TSO_AHEAD_MS_MAX`, for several timestamps at once. The difference is reserved for single ones. */
export const TSO_BULK_AHEAD_MS_MAX = 4000
export const TSO_WAIT_MS_MAX = 3000
export const WRITE_AHEAD_MS_MAX = 60_000

// The process and its files.

/** Connections that wait to be accepted; the system has its own limit (`net.core.somaxconn`). */
export const LISTEN_BACKLOG = 4096
export const RETRY_AFTER_S = 1
export const SHUTDOWN_GRACE_MS = 8_000
/** Tables of a larger database are verified in the background, not before the start. */
export const START_VERIFY_BYTES_MAX = 256 * MIB
export const SCRUB_FIRST_MS = 10_000
export const SCRUB_EVERY_MS = 24 * 60 * 60 * 1000
/** Pause between two tables of 2 MiB: some 40 MB/s. */
export const SCRUB_PAUSE_MS = 50
/** Shortest interval between two looks at the files of the open database, before acknowledgements. */
export const FILES_LOOK_MS = 10
/** Interval of these looks while nothing is written. */
export const FILES_LOOK_EVERY_MS = 1000
