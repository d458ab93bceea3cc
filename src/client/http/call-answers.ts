import { ANYTHING, BOOLEAN, BYTES, INTEGER, listOf, optional, orNull, record, TEXT } from './answer-shape.js'

const LOCK = record({
  key: BYTES,
  primary: BYTES,
  startTs: INTEGER,
  ttl: INTEGER,
  type: TEXT,
  txnSize: INTEGER,
  forUpdateTs: INTEGER,
  minCommitTs: INTEGER,
  secondaries: listOf(BYTES),
  expireTs: optional(INTEGER),
  leaseFence: optional(INTEGER),
})
export const PAIRS = record({
  pairs: listOf(
    record({
      key: BYTES,
      value: optional(BYTES),
      commitTs: INTEGER,
      expireTs: optional(INTEGER),
      leaseFence: optional(INTEGER),
    }),
  ),
})
const RECORDS = record({
  lock: orNull(LOCK),
  writes: listOf(
    record({
      type: TEXT,
      startTs: INTEGER,
      commitTs: INTEGER,
      shortValue: optional(BYTES),
      expireTs: optional(INTEGER),
      leaseFence: optional(INTEGER),
    }),
  ),
  values: listOf(record({ startTs: INTEGER, value: BYTES })),
})

export const CALL_ANSWERS = {
  tso: record({ ts: INTEGER, now: optional(INTEGER) }),
  get: record({
    found: BOOLEAN,
    value: optional(BYTES),
    commitTs: optional(INTEGER),
    expireTs: optional(INTEGER),
    leaseFence: optional(INTEGER),
  }),
  batch_get: PAIRS,
  scan: PAIRS,
  prewrite: record({ minCommitTs: optional(INTEGER), onePcCommitTs: optional(INTEGER) }),
  commit: record({ commitTs: INTEGER }),
  rollback: ANYTHING,
  cleanup: ANYTHING,
  check_txn_status: record({ status: TEXT, lockTtl: INTEGER, commitTs: INTEGER, action: TEXT, lock: optional(LOCK) }),
  check_secondary_locks: record({ locks: listOf(LOCK), commitTs: INTEGER }),
  txn_heart_beat: record({ lockTtl: INTEGER }),
  acquire_pessimistic_lock: record({
    results: listOf(
      record({
        found: optional(BOOLEAN),
        value: optional(BYTES),
        expireTs: optional(INTEGER),
        leaseFence: optional(INTEGER),
        lockedWithConflictTs: optional(INTEGER),
      }),
    ),
  }),
  pessimistic_rollback: ANYTHING,
  validate_reads: ANYTHING,
  resolve_lock: record({ resolved: INTEGER }),
  scan_lock: record({ locks: listOf(LOCK) }),
  mvcc_get_by_key: RECORDS,
  mvcc_get_by_start_ts: RECORDS,
  delete_range: ANYTHING,
} as const

export const TXN_DONE = record({ startTs: INTEGER, results: listOf(ANYTHING) })
export const SERVER_STATUS = record({ version: TEXT, store: TEXT, uptimeMs: INTEGER, counts: ANYTHING })
