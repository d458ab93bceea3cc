import type { Database, DatabaseStatus } from '../../database/database.js'
import type { Histogram } from '../../meters/histogram.js'
import type { HttpMeters, RouteMeter } from '../../meters/http-meters.js'
import type { StoreMeters } from '../../meters/store-meters.js'
import type { CountedObserver } from '../../observers/observers.js'
import type { DiskSpace } from '../../store/store.js'
import { physicalMs } from '../../timestamp.js'
import type { Traffic } from '../admission/traffic.js'
import { counter, type Family, gauge, histogram, type Labels } from './family.js'

export interface Measured {
  readonly database: Database
  readonly traffic: Traffic
  readonly meters: HttpMeters
  readonly version: string
  readonly durability: string
}

/** What the system has to be asked for. */
export interface Asked {
  readonly connections: number
  /** undefined: the store has no files, or cannot tell at present. */
  readonly storeBytes: number | undefined
  readonly diskSpace: DiskSpace | undefined
}

/** All of PerKV's own metrics. docs/monitoring/README.md explains each. */
export function* families(measured: Measured, asked: Asked): Generator<Family, void> {
  const { database, version, durability } = measured
  yield gauge('perkv_build_info', 'The version of the server, its store and its durability. Always 1.', [
    [{ version, store: database.store.name, durability }, 1],
  ])
  yield* ofHttp(measured, asked)
  yield* ofTransactions(database.store.figures.meters)
  const status = database.status()
  yield* ofLocks(database, status)
  yield* ofOracle(database)
  yield* ofTable(database)
  yield* ofStorage(database, status, asked)
  yield* ofCollection(database, status)
  yield* ofFeeds(database, status)
  yield* ofLeases(database)
  yield* ofObservers([...database.observers.counts()])
}

function ofHttp({ traffic, meters }: Measured, { connections }: Asked): Family[] {
  const { requests, answerBytes, bodyBytes, streams, watches, shed } = traffic.status
  return [
    histogram(
      'perkv_http_request_duration_seconds',
      'From the head of a request to the end of its answer, without streams.',
      byRoute(meters, ({ answers }) => answers),
    ),
    histogram(
      'perkv_http_stream_duration_seconds',
      'The same of streams: feeds, NDJSON, backups.',
      byRoute(meters, (route) => route.streams),
    ),
    counter(
      'perkv_http_problems_total',
      'Problems by their code.',
      [...meters.problems].map(([code, count]) => [{ code }, count]),
    ),
    gauge('perkv_http_connections', 'Open connections.', connections),
    gauge('perkv_http_requests_in_flight', 'Requests that are admitted and not answered.', requests),
    counter('perkv_http_requests_shed_total', 'Requests that were refused because of overload.', shed),
    gauge('perkv_http_body_bytes', 'Bytes of request bodies in memory.', bodyBytes),
    gauge('perkv_http_answer_bytes', 'Bytes of long answers in memory.', answerBytes),
    gauge('perkv_http_streams', 'NDJSON scans and backups that are open.', streams),
    gauge('perkv_http_watches', 'Requests that wait for something to happen, and streams of changes.', watches),
    histogram('perkv_event_loop_delay_seconds', 'By how much a timer of 50 ms came late.', traffic.loopDelays),
  ]
}

function* byRoute(
  meters: HttpMeters,
  of: (route: RouteMeter) => ReadonlyMap<number, Histogram>,
): Generator<readonly [Labels, Histogram]> {
  for (const route of meters.routes)
    for (const [code, durations] of of(route)) yield [{ method: route.method, route: route.route, code }, durations]
}

function ofTransactions({ commits, rolledBackKeys, resolvedLocks, refusals, ...waits }: StoreMeters): Family[] {
  const refused = [...refusals].map(([name, count]) => [name.split('\n') as [string, string], count] as const)
  return [
    counter('perkv_commits_total', 'Transactions that were committed: in one phase, in two, or by async commit.', [
      [{ kind: '1pc' }, commits.onePhase],
      [{ kind: '2pc' }, commits.twoPhase],
      [{ kind: 'async' }, commits.async],
    ]),
    counter('perkv_rolled_back_keys_total', 'Keys of transactions that their clients rolled back.', rolledBackKeys),
    counter(
      'perkv_write_conflicts_total',
      "Prewrites and locks that were refused because of a newer version, by TiKV's reason.",
      refused.flatMap(([[code, reason], count]) => (code === 'write_conflict' ? [[{ reason }, count] as const] : [])),
    ),
    counter(
      'perkv_refusals_total',
      'Prewrites, commits and pessimistic locks that were refused, by code.',
      byCode(refused),
    ),
    counter('perkv_resolved_locks_total', 'Locks that were ended for others, by the outcome of their transaction.', [
      [{ outcome: 'committed' }, resolvedLocks.committed],
      [{ outcome: 'rolled_back' }, resolvedLocks.rolledBack],
    ]),
    histogram('perkv_latch_wait_seconds', 'Waits for latches. Those that were free are not counted.', waits.latchWaits),
    histogram('perkv_lock_wait_seconds', 'Waits of pessimistic requests in the queue of a lock.', waits.lockWaits),
  ]
}

function byCode(refused: readonly (readonly [readonly [string, string], number])[]): (readonly [Labels, number])[] {
  const sums = new Map<string, number>()
  for (const [[code], count] of refused) sums.set(code, (sums.get(code) ?? 0) + count)
  return [...sums].map(([code, count]) => [{ code }, count])
}

function ofLocks(database: Database, status: DatabaseStatus): Family[] {
  const { locks, openTransactions, transactionBytes, outcomeBytes } = status
  const { store } = database
  const oldestTs = store.locks?.oldestTs
  const ageS = oldestTs === undefined ? 0 : (physicalMs(store.now()) - physicalMs(oldestTs)) / 1000
  return [
    ...(locks === undefined
      ? []
      : [
          gauge('perkv_locks', 'Locks on keys now.', locks),
          gauge('perkv_oldest_lock_age_seconds', 'Time since the start of the oldest lock; 0: none stands.', ageS),
        ]),
    gauge('perkv_lock_waiters', 'Requests in the queues of locks now.', store.figures.waiting),
    gauge('perkv_open_transactions', 'Interactive transactions that are open.', openTransactions),
    gauge('perkv_open_transaction_bytes', 'Bytes that they hold in memory.', transactionBytes),
    gauge('perkv_outcome_bytes', 'Bytes of stored outcomes of idempotent requests.', outcomeBytes),
  ]
}

function ofOracle({ store }: Database): Family[] {
  const { meters, aheadMs, clockAheadMs } = store.figures.oracle
  return [
    counter('perkv_oracle_timestamps_total', 'Timestamps that were handed out.', meters.timestamps),
    histogram('perkv_oracle_wait_seconds', 'Waits for timestamps: for the mark on disk, or for the clock.', [
      [{ reason: 'mark' }, meters.markWaits],
      [{ reason: 'ahead' }, meters.aheadWaits],
    ]),
    gauge('perkv_oracle_ahead_seconds', 'By how much timestamps are ahead of the clock.', aheadMs / 1000),
    gauge('perkv_clock_ahead_seconds', 'By how much the clock is ahead of the system clock.', clockAheadMs / 1000),
    counter('perkv_clock_steps_total', 'Steps of the system clock by more than a second.', [
      [{ direction: 'forward' }, meters.clockSteps.forward],
      [{ direction: 'back' }, meters.clockSteps.back],
    ]),
  ]
}

function ofTable({ store, registry }: Database): Family[] {
  const { tableCalls } = store.figures
  if (tableCalls === undefined) return []
  const { calls, races, lostGuesses, uncertain, trimmed } = tableCalls
  return [
    gauge('perkv_servers', 'Servers of the table that are alive, as this one sees it.', registry.servers().length),
    counter('perkv_table_calls_total', 'Calls to the table that the servers share, by kind.', [
      ...Object.entries(calls).map(([kind, count]) => [{ kind }, count] as const),
    ]),
    counter('perkv_table_races_total', 'Changes of rows that others had changed meanwhile.', races),
    counter('perkv_table_lost_guesses_total', 'Those of them that were decided on a row in memory.', lostGuesses),
    counter('perkv_table_lost_answers_total', 'Changes of rows whose answer was lost.', uncertain),
    counter('perkv_table_trimmed_records_total', 'Old records that went with other changes of their rows.', trimmed),
  ]
}

function ofStorage(
  { store }: Database,
  { fault, restoring }: DatabaseStatus,
  { storeBytes, diskSpace }: Asked,
): Family[] {
  const { meters, writeQueue, cacheBytes } = store.figures
  const { cache, groupBatches, groupBytes, writes, failedWrites } = meters
  const levels = store.files?.levels() ?? []
  const writable = fault === undefined && restoring === undefined ? 1 : 0
  return [
    gauge('perkv_writable', '1, or 0 while writes are refused.', writable),
    histogram('perkv_engine_write_seconds', 'Writes to the engine, with their fsync if they have one.', writes),
    histogram('perkv_group_commit_batches', 'Batches that shared a write.', groupBatches),
    histogram('perkv_group_commit_bytes', 'Bytes of a write.', groupBytes),
    counter('perkv_engine_failed_writes_total', 'Writes that failed.', failedWrites),
    gauge('perkv_engine_queued_batches', 'Batches that wait for the disk.', writeQueue.batches),
    gauge('perkv_engine_queued_bytes', 'Their bytes.', writeQueue.bytes),
    counter('perkv_version_cache_hits_total', 'Reads of a key that memory has answered.', cache.hits),
    counter('perkv_version_cache_misses_total', 'Reads of a key that went to the engine.', cache.misses),
    ...(cacheBytes === undefined
      ? []
      : [gauge('perkv_version_cache_bytes', 'Bytes that the version cache holds.', cacheBytes)]),
    ...(storeBytes === undefined
      ? []
      : [gauge('perkv_store_bytes', 'Bytes of the tables on disk, about.', storeBytes)]),
    ...(diskSpace === undefined
      ? []
      : [
          gauge('perkv_disk_free_bytes', 'Free bytes of the file system of the data directory.', diskSpace.freeBytes),
          gauge('perkv_disk_size_bytes', 'All bytes of that file system.', diskSpace.bytes),
        ]),
    gauge(
      'perkv_leveldb_level_files',
      'Tables per level.',
      levels.map(({ level, files }) => [{ level }, files]),
    ),
    gauge(
      'perkv_leveldb_level_bytes',
      'Bytes of the tables per level, to the MiB.',
      levels.map(({ level, bytes }) => [{ level }, bytes]),
    ),
  ]
}

function ofCollection({ store }: Database, { gc, safePoint }: DatabaseStatus): Family[] {
  const { lastRun } = gc
  const { runs, failures, removedVersions, seconds } = store.figures.meters.collections
  return [
    gauge(
      'perkv_safe_point_age_seconds',
      'Age of the safe point; 0 before the first collection.',
      safePoint === 0 ? 0 : secondsSince(store.now(), safePoint),
    ),
    gauge('perkv_pins', 'Pins of snapshots.', gc.pins),
    counter('perkv_collections_total', 'Collections of old versions that have begun.', runs),
    counter('perkv_collection_failures_total', 'Those that failed.', failures),
    counter('perkv_collection_seconds_total', 'How long they have run.', seconds),
    counter('perkv_collection_removed_versions_total', 'Versions that collections have removed.', removedVersions),
    gauge('perkv_collection_running', '1 while old versions are collected.', gc.isRunning ? 1 : 0),
    ...(lastRun === undefined
      ? []
      : [
          gauge(
            'perkv_collection_last_start_timestamp_seconds',
            'Unix time at which the last collection began.',
            lastRun.startedAtMs / 1000,
          ),
          gauge(
            'perkv_collection_last_duration_seconds',
            'How long the last collection took.',
            lastRun.durationMs / 1000,
          ),
        ]),
  ]
}

function ofFeeds(database: Database, { feed }: DatabaseStatus): Family[] {
  const { lagMs, heldBackBy, live, behind } = feed
  const consumers = database.changes.consumers.summary()
  return [
    gauge('perkv_feed_lag_seconds', 'How far resolved_ts is behind because locks hold it back.', lagMs / 1000),
    gauge(
      'perkv_feed_held_back_by',
      'Locks that hold it back, of transactions that are over 2 s old.',
      heldBackBy.length,
    ),
    gauge('perkv_feed_streams', 'Streams of changes that have caught up, and that read the log.', [
      [{ state: 'live' }, live],
      [{ state: 'behind' }, behind],
    ]),
    gauge('perkv_consumers', 'Durable consumers.', consumers.count),
    gauge('perkv_consumers_lost', 'Those whose position a collection has passed.', consumers.lost),
    gauge('perkv_consumer_lag_seconds', 'Age of the oldest position of the others.', consumers.lagMs / 1000),
  ]
}

function ofLeases({ leases }: Database): Family[] {
  const { held, waiting, grants, renewals, ends } = leases.summary()
  return [
    gauge('perkv_leases', 'Leases that are held.', held),
    gauge('perkv_lease_waits', 'Requests that wait for a lease.', waiting),
    counter('perkv_lease_grants_total', 'Leases that were granted.', grants),
    counter('perkv_lease_renewals_total', 'Renewals of leases.', renewals),
    counter('perkv_lease_ends_total', 'Leases that were released, and that ran out.', [
      [{ end: 'released' }, ends.released],
      [{ end: 'ran_out' }, ends.ranOut],
    ]),
  ]
}

function ofObservers(all: readonly CountedObserver[]): Family[] {
  const per = (of: (state: CountedObserver) => number) =>
    all.map((state) => [{ observer: state.name }, of(state)] as const)
  return [
    gauge(
      'perkv_observer_pending',
      'Keys that an observer has to run for.',
      per(({ pending }) => pending),
    ),
    gauge(
      'perkv_observer_claimed',
      'Those that workers have taken.',
      per(({ claimed }) => claimed),
    ),
    gauge(
      'perkv_observer_delayed',
      'Those that wait for another attempt.',
      per(({ delayed }) => delayed),
    ),
    gauge(
      'perkv_observer_parked',
      'Keys that have failed too often.',
      per(({ parked }) => parked),
    ),
    gauge(
      'perkv_observer_lag_seconds',
      'Age of the oldest change that is not covered.',
      per(({ lagMs }) => lagMs / 1000),
    ),
    counter(
      'perkv_observer_acks_total',
      'Runs that were committed.',
      per(({ acks }) => acks),
    ),
    counter(
      'perkv_observer_conflicts_total',
      'Runs that were refused.',
      per(({ conflicts }) => conflicts),
    ),
  ]
}

function secondsSince(now: number, ts: number): number {
  return Math.max(0, physicalMs(now) - physicalMs(ts)) / 1000
}
