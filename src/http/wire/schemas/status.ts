import { DURABILITIES } from '../../../store/durability.js'
import { HeldBackBy, Restore } from './admin.js'
import { answering } from './call-schema.js'
import { Type } from './schema.js'
import { Count, described, HoldingLock, Key, Milliseconds, oneOf, optional, TimestampOrZero } from './values.js'

export const alive = answering(Type.Object({ status: oneOf(['ok']) }))
export const ready = answering(Type.Object({ status: oneOf(['ready']) }))

export const metrics = { answers: { 200: { text: 'text/plain' } } } as const

export const serverStatus = answering(
  Type.Object({
    version: described(Type.String(), 'Of the server.'),
    store: Type.String(),
    capabilities: Type.Object({
      one_phase_commit: described(
        Type.Boolean(),
        '`try_one_pc` of a prewrite can be granted; otherwise it falls back to two phases.',
      ),
      async_commit: described(
        Type.Boolean(),
        '`use_async_commit` of a prewrite can be granted; otherwise it falls back to two phases.',
      ),
      atomic_requests: described(
        Type.Boolean(),
        'All that a request changes is written at once. Otherwise its primary decides, and whoever meets the other keys finishes them.',
      ),
      deadlocks: described(
        oneOf(['detected', 'timeout']),
        '`detected`: a deadlock is found at once. `timeout`: its waits run out.',
      ),
      restore: described(Type.Boolean(), 'There is `POST /v1/admin/restore`.'),
      compact: described(Type.Boolean(), 'There is `POST /v1/admin/compact`.'),
      changes: described(Type.Boolean(), 'There is a log of all commits: the change feed and consumers need it.'),
      collection: described(Type.Boolean(), 'Old versions can be removed, by `POST /v1/admin/gc`.'),
      lock_count: described(Type.Boolean(), 'Locks are counted, and bounded: `counts.locks`, `overload.locks`.'),
    }),
    durability: described(oneOf([...DURABILITIES]), '`1s` and `async` answer without an fsync.'),
    server: described(optional(Type.String()), 'Id of this process, where several serve one store.'),
    oracle: described(
      optional(
        Type.Object({
          role: described(
            oneOf(['leader', 'follower', 'candidate']),
            '`candidate`: it knows of no leader that is alive.',
          ),
          leader: described(optional(Type.String()), 'URL of the server that hands out the timestamps.'),
          epoch: described(Type.Integer(), 'How often the lead has changed hands.'),
        }),
      ),
      'Of the timestamps, where several servers share them.',
    ),
    servers: described(
      optional(
        Type.Array(
          Type.Object({
            id: Type.String(),
            url: described(Type.String(), 'Where the other servers reach it.'),
            silent_ms: described(
              Milliseconds,
              'For how long this server has heard nothing of it. Up to some seconds are usual.',
            ),
          }),
        ),
      ),
      'Those that serve the store together and are alive, this one too.',
    ),
    uptime_ms: described(Milliseconds, 'Since the start.'),
    writable: described(Type.Boolean(), 'False: writes are refused, and `fault` says why.'),
    fault: optional(Type.String()),
    safe_point: described(TimestampOrZero, 'Reads below it are 410; 0: nothing was collected yet.'),
    restoring: described(optional(Restore), 'While a restore is not complete: what was stored so far.'),
    observers: Type.Object({
      count: Count,
      pending: described(Count, 'Cells to run.'),
      parked: described(Count, 'Cells that nobody runs any more.'),
      lag_ms: described(
        Milliseconds,
        'Age of the oldest change that is known to be uncovered. High for long: there are too few workers, or they fail.',
      ),
    }),
    feed: Type.Object({
      resolved_ts: described(TimestampOrZero, '0 while nobody reads the feed.'),
      lag_ms: described(
        Milliseconds,
        'How far the feed is behind: where servers share the store always, else because locks hold it back.',
      ),
      held_back_by: described(
        Type.Array(HoldingLock),
        'The lowest locks that hold the feed back and belong to transactions that are over 2 s old, whether or not anybody reads the feed. Empty where servers share the store.',
      ),
      live: described(Count, 'Streams that have caught up.'),
      behind: described(Count, 'Streams that read the log.'),
    }),
    consumers: Type.Object({
      count: Count,
      lost: described(Count, 'Consumers whose position a collection has passed.'),
      lag_ms: described(
        Milliseconds,
        'The longest of the others. High for long: one is not read, and holds old versions.',
      ),
    }),
    leases: Type.Object({
      held: Count,
      waiting: described(Count, 'Requests that wait for a lease.'),
    }),
    watches: described(Count, 'Streams of changes, and requests that wait for a change, a claim or a lease.'),
    counts: Type.Object({
      locks: described(
        optional(Count),
        'Stored, pessimistic and of requests in flight; absent where the store does not count them.',
      ),
      open_transactions: described(Count, 'Interactive ones.'),
    }),
    overload: Type.Object({
      requests: described(Count, 'Requests in flight, with all of their bodies.'),
      receiving: described(Count, 'Requests whose bodies are still arriving.'),
      body_bytes: described(Count, 'Of the bodies of both, as far as they have arrived.'),
      answer_bytes: described(Count, 'Read, and not taken yet by clients.'),
      locks: described(
        optional(Count),
        'Stored, pessimistic and of requests in flight; absent where the store does not count them.',
      ),
      queued_batches: described(optional(Count), 'Waiting for the disk. High for long: the disk is too slow.'),
      queued_bytes: optional(Count),
      loop_delay_ms: described(Milliseconds, 'Of the event loop. High for long: the processor is too slow.'),
      streams: described(Count, 'NDJSON scans and backups in flight.'),
      watches: Count,
      shed: described(Count, 'Requests that were turned away since the start.'),
      transaction_bytes: described(Count, 'Held by open interactive transactions.'),
      outcome_bytes: described(Count, 'Stored for repeats of requests with an `Idempotency-Key`.'),
    }),
    gc: Type.Object({
      life_time_ms: Milliseconds,
      interval_ms: Milliseconds,
      is_running: described(Type.Boolean(), 'A collection is under way.'),
      pins: described(Count, 'Snapshots that are pinned.'),
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
    access: Type.Object({
      may_write: described(Type.Boolean(), "Whether the caller's token may write."),
      prefixes: described(optional(Type.Array(Key)), 'Prefixes of the keys that it reaches; absent: every key.'),
      expires_at: described(
        optional(Type.String({ format: 'date-time' })),
        'From when on it is not accepted; absent: never.',
      ),
    }),
  }),
)
