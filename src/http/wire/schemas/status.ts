import { HeldBackBy, Restore } from './admin.js'
import { answering } from './call-schema.js'
import { Type } from './schema.js'
import { Count, Key, LockInfo, Milliseconds, oneOf, optional, TimestampOrZero } from './values.js'

export const alive = answering(Type.Object({ status: oneOf(['ok']) }))
export const ready = answering(Type.Object({ status: oneOf(['ready']) }))

export const serverStatus = answering(
  Type.Object({
    version: Type.String(),
    store: Type.String(),
    capabilities: Type.Object({
      one_phase_commit: Type.Boolean(),
      async_commit: Type.Boolean(),
      atomic_requests: Type.Boolean(),
      deadlocks: oneOf(['detected', 'timeout']),
      restore: Type.Boolean(),
      compact: Type.Boolean(),
      lock_count: Type.Boolean(),
    }),
    durability: oneOf(['sync', 'async']),
    uptime_ms: Milliseconds,
    writable: Type.Boolean(),
    fault: optional(Type.String()),
    safe_point: TimestampOrZero,
    restoring: optional(Restore),
    observers: Type.Object({ count: Count, pending: Count, parked: Count, lag_ms: Milliseconds }),
    /** `resolved_ts`: 0 while nobody reads the feed. */
    feed: Type.Object({
      resolved_ts: TimestampOrZero,
      lag_ms: Milliseconds,
      held_back_by: Type.Array(LockInfo),
      live: Count,
      behind: Count,
    }),
    consumers: Type.Object({ count: Count, lost: Count, lag_ms: Milliseconds }),
    /** Streams, and requests that wait. */
    watches: Count,
    counts: Type.Object({ locks: optional(Count), open_transactions: Count }),
    overload: Type.Object({
      requests: Count,
      receiving: Count,
      body_bytes: Count,
      answer_bytes: Count,
      locks: optional(Count),
      queued_batches: optional(Count),
      queued_bytes: optional(Count),
      loop_delay_ms: Milliseconds,
      streams: Count,
      watches: Count,
      shed: Count,
      transaction_bytes: Count,
      outcome_bytes: Count,
    }),
    gc: Type.Object({
      life_time_ms: Milliseconds,
      interval_ms: Milliseconds,
      is_running: Type.Boolean(),
      pins: Count,
      last_run: optional(
        Type.Object({
          safe_point: TimestampOrZero,
          versions_removed: Count,
          held_back_by: HeldBackBy,
          started_at_ms: Milliseconds,
          duration_ms: Milliseconds,
        }),
      ),
    }),
    /** Rights of the caller's token. `prefixes` is absent where it reaches every key. */
    access: Type.Object({ may_write: Type.Boolean(), prefixes: optional(Type.Array(Key)) }),
  }),
)
