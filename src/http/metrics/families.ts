import type { Database, DatabaseStatus } from '../../database/database.js'
import type { Histogram } from '../../meters/histogram.js'
import type { HttpMeters, RouteMeter } from '../../meters/http-meters.js'
import type { StoreMeters } from '../../meters/store-meters.js'
import type { CountedObserver } from '../../observers/observers.js'
import { ORACLE_ROLES } from '../../oracle/oracle-state.js'
import type { DiskSpace } from '../../store/store.js'
import { physicalMs } from '../../timestamp.js'
import type { WebhookState, Webhooks } from '../../webhooks/webhooks.js'
import type { Traffic } from '../admission/traffic.js'
import { counter, type Family, gauge, histogram, type Labels } from './family.js'

export interface Measured {
  readonly database: Database
  readonly traffic: Traffic
  readonly meters: HttpMeters
  readonly webhooks?: Webhooks | undefined
  readonly version: string
  readonly durability: string
}

export interface Asked {
  readonly connections: number
  /** undefined: the store has no files, or their size is unknown at present. */
  readonly storeBytes: number | undefined
  readonly diskSpace: DiskSpace | undefined
}

/** All of PerKV's own metrics. docs/metrics.md lists them: `npm run docs`. */
export function* families(measured: Measured, asked: Asked): Generator<Family, void> {
  const { database, version, durability } = measured
  yield gauge('perkv_build_info', 'Always 1.', [[{ version, store: database.store.name, durability }, 1]])
  yield* ofHttp(measured, asked)
  yield* ofTransactions(database.store.figures.meters)
  const status = database.status()
  yield* ofLocks(database, status)
  yield* ofOracle(database)
  yield* ofTable(database)
  yield* ofStorage(database, status, asked)
  yield* ofCollection(database, status)
  yield* ofFeeds(database, status)
  yield* ofWebhooks([...(measured.webhooks?.delivering() ?? [])])
  yield* ofLeases(database)
  yield* ofObservers([...database.observers.counts()])
}

function ofHttp({ traffic, meters }: Measured, { connections }: Asked): Family[] {
  const { requests, answerBytes, bodyBytes, streams, watches, shed } = traffic.status
  return [
    histogram(
      'perkv_http_request_duration_seconds',
      'From the head of a request to the end of its answer. route: a pattern such as /v1/kv/:key, or none; code: the status.',
      byRoute(meters, ({ answers }) => answers),
    ),
    histogram(
      'perkv_http_stream_duration_seconds',
      'Duration of feeds, NDJSON streams and backups.',
      byRoute(meters, (route) => route.streams),
    ),
    counter(
      'perkv_http_problems_total',
      'Problem documents by their code.',
      [...meters.problems].map(([code, count]) => [{ code }, count]),
    ),
    gauge('perkv_http_connections', 'Open connections; bound: --connections-max.', connections),
    gauge('perkv_http_requests_in_flight', 'Requests being served; bound: --requests-max.', requests),
    counter('perkv_http_requests_shed_total', 'Requests refused because of overload.', shed),
    gauge('perkv_http_body_bytes', 'Bytes of request bodies in memory; bound: --bodies-bytes-max.', bodyBytes),
    gauge('perkv_http_answer_bytes', 'Bytes of long answers in memory; bound: --answers-bytes-max.', answerBytes),
    gauge('perkv_http_streams', 'Open NDJSON scans and backups; bound: --streams-max.', streams),
    gauge(
      'perkv_http_watches',
      'Streams of changes, and requests that wait for a change or a claim; bound: --watches-max.',
      watches,
    ),
    histogram(
      'perkv_event_loop_delay_seconds',
      'Lateness of a timer: so long every request has waited for the processor.',
      traffic.loopDelays,
    ),
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
    counter(
      'perkv_commits_total',
      'Committed transactions: in one phase (1pc), in two (2pc), by async commit (async).',
      [
        [{ kind: '1pc' }, commits.onePhase],
        [{ kind: '2pc' }, commits.twoPhase],
        [{ kind: 'async' }, commits.async],
      ],
    ),
    counter('perkv_rolled_back_keys_total', 'Keys rolled back by their clients.', rolledBackKeys),
    counter(
      'perkv_write_conflicts_total',
      "Prewrites and locks refused because of a newer version, by TiKV's reasons.",
      refused.flatMap(([[code, reason], count]) => (code === 'write_conflict' ? [[{ reason }, count] as const] : [])),
    ),
    counter('perkv_refusals_total', 'Prewrites, commits and pessimistic locks refused, by code.', byCode(refused)),
    counter('perkv_resolved_locks_total', 'Locks of other transactions that were committed or rolled back.', [
      [{ outcome: 'committed' }, resolvedLocks.committed],
      [{ outcome: 'rolled_back' }, resolvedLocks.rolledBack],
    ]),
    histogram(
      'perkv_latch_wait_seconds',
      'Waits for requests that write the same key at this moment; free latches are not counted.',
      waits.latchWaits,
    ),
    histogram('perkv_lock_wait_seconds', 'Waits of pessimistic requests for a lock.', waits.lockWaits),
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
          gauge('perkv_locks', 'Locks; bound: --locks-max.', locks),
          gauge('perkv_oldest_lock_age_seconds', 'Age of the oldest lock; 0: there is none.', ageS),
        ]),
    gauge('perkv_lock_waiters', 'Pessimistic requests that wait for a lock.', store.figures.waiting),
    gauge('perkv_open_transactions', 'Open interactive transactions; bound: --txns-max.', openTransactions),
    gauge(
      'perkv_open_transaction_bytes',
      'Bytes buffered by open transactions; bound: --txns-bytes-max.',
      transactionBytes,
    ),
    gauge(
      'perkv_outcome_bytes',
      'Bytes of stored outcomes of requests with an Idempotency-Key; bound: --outcomes-bytes-max.',
      outcomeBytes,
    ),
  ]
}

function ofOracle({ store }: Database): Family[] {
  const { meters, role, aheadMs, clockAheadMs, clockOffsetMs } = store.figures.oracle
  return [
    gauge(
      'perkv_oracle_role',
      '1 at the part that the server has in handing out timestamps. A candidate knows of no live leader; a server that has its store to itself leads.',
      ORACLE_ROLES.map((name) => [{ role: name }, name === role.role ? 1 : 0]),
    ),
    gauge(
      'perkv_oracle_epoch',
      'How often the lead has changed hands; 0 at a server that has its store to itself.',
      role.epoch,
    ),
    counter('perkv_oracle_timestamps_total', 'Timestamps handed out.', meters.timestamps),
    counter(
      'perkv_oracle_failures_total',
      'Requests for timestamps that ended without one, of this server.',
      meters.failures,
    ),
    histogram(
      'perkv_oracle_wait_seconds',
      "Waits for timestamps: for the oracle's write to disk (mark), or for the clock (ahead).",
      [
        [{ reason: 'mark' }, meters.markWaits],
        [{ reason: 'ahead' }, meters.aheadWaits],
      ],
    ),
    gauge(
      'perkv_oracle_ahead_seconds',
      'How far timestamps are ahead of the clock, after bursts of over 2048 per millisecond.',
      aheadMs / 1000,
    ),
    gauge(
      'perkv_clock_ahead_seconds',
      "How far the server's clock is ahead of a system clock that was set back.",
      clockAheadMs / 1000,
    ),
    gauge(
      'perkv_clock_offset_seconds',
      'How far the system clock is ahead of the clock of the timestamps, which servers of one table share; below 0: behind.',
      clockOffsetMs / 1000,
    ),
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
    counter('perkv_table_lost_guesses_total', 'Races lost because the decision used a cached row.', lostGuesses),
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
    gauge('perkv_writable', '0 while writes are refused (a full disk, damage, a restore), else 1.', writable),
    histogram('perkv_engine_write_seconds', 'Writes of the engine, each with its fsync.', writes),
    histogram('perkv_group_commit_batches', 'Batches that shared a write. Many: the disk is the bound.', groupBatches),
    histogram('perkv_group_commit_bytes', 'Bytes of a write.', groupBytes),
    counter('perkv_engine_failed_writes_total', 'Writes that failed.', failedWrites),
    gauge(
      'perkv_engine_queued_batches',
      'Batches that wait for the disk; bound: --write-queue-max.',
      writeQueue.batches,
    ),
    gauge(
      'perkv_engine_queued_bytes',
      'Bytes that wait for the disk; bound: --write-queue-bytes-max.',
      writeQueue.bytes,
    ),
    counter('perkv_version_cache_hits_total', 'Reads of single keys answered from memory.', cache.hits),
    counter(
      'perkv_version_cache_misses_total',
      'Reads of single keys that went to LevelDB. Many, and slow: raise --cache-bytes-max.',
      cache.misses,
    ),
    ...(cacheBytes === undefined
      ? []
      : [gauge('perkv_version_cache_bytes', 'Bytes of the version cache; bound: --cache-bytes-max.', cacheBytes)]),
    ...(storeBytes === undefined
      ? []
      : [gauge('perkv_store_bytes', 'Bytes of the tables on disk, about, without the log.', storeBytes)]),
    ...(diskSpace === undefined
      ? []
      : [
          gauge('perkv_disk_free_bytes', 'Free bytes of the file system of --data.', diskSpace.freeBytes),
          gauge('perkv_disk_size_bytes', 'All bytes of the file system of --data.', diskSpace.bytes),
        ]),
    gauge(
      'perkv_leveldb_level_files',
      'Tables per level. Level 0 above 8 for long: compaction does not keep up.',
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
      'Age of the safe point: about --gc-life-time plus --gc-interval, unless something holds it back.',
      safePoint === 0 ? 0 : secondsSince(store.now(), safePoint),
    ),
    gauge('perkv_pins', 'Pinned snapshots.', gc.pins),
    counter('perkv_collections_total', 'Collections of old versions.', runs),
    counter('perkv_collection_failures_total', 'Collections that failed.', failures),
    counter('perkv_collection_seconds_total', 'Run time of collections.', seconds),
    counter('perkv_collection_removed_versions_total', 'Versions removed by collections.', removedVersions),
    gauge('perkv_collection_running', '1 while old versions are collected.', gc.isRunning ? 1 : 0),
    ...(lastRun === undefined
      ? []
      : [
          gauge(
            'perkv_collection_last_start_timestamp_seconds',
            'Unix time of the last collection; absent before the first.',
            lastRun.startedAtMs / 1000,
          ),
          gauge(
            'perkv_collection_last_duration_seconds',
            'Duration of the last collection; absent before the first.',
            lastRun.durationMs / 1000,
          ),
        ]),
  ]
}

function ofFeeds(database: Database, { feed }: DatabaseStatus): Family[] {
  const { lagMs, heldBackBy, live, behind } = feed
  const consumers = database.changes.consumers.summary()
  return [
    gauge(
      'perkv_feed_lag_seconds',
      'How far the change feed is behind: because locks hold it back; where servers share the store, always.',
      lagMs / 1000,
    ),
    gauge(
      'perkv_feed_held_back_by',
      'Locks of transactions over 2 s old that hold the change feed back.',
      heldBackBy.length,
    ),
    gauge('perkv_feed_streams', 'Streams of changes: live, or behind and reading from disk.', [
      [{ state: 'live' }, live],
      [{ state: 'behind' }, behind],
    ]),
    gauge('perkv_consumers', 'Durable consumers; bound: --consumers-max.', consumers.count),
    gauge('perkv_consumers_lost', 'Consumers whose position collection has passed.', consumers.lost),
    gauge('perkv_consumer_lag_seconds', 'Age of the oldest position that is not lost.', consumers.lagMs / 1000),
  ]
}

function ofWebhooks(webhooks: readonly WebhookState[]): Family[] {
  const each = (value: (webhook: WebhookState) => number): (readonly [Labels, number])[] =>
    webhooks.map((one) => [{ webhook: one.webhook.name }, value(one)])
  return [
    counter(
      'perkv_webhook_deliveries_total',
      'Batches of transactions that targets have taken. Webhooks are shown at the server that delivers them.',
      each(({ counts }) => counts.deliveries),
    ),
    counter(
      'perkv_webhook_failures_total',
      'Attempts of deliveries that have failed.',
      each(({ counts }) => counts.failures),
    ),
    gauge(
      'perkv_webhook_lag_seconds',
      'Age of the position of a webhook; 0: nothing was committed since.',
      each(({ consumer }) => (consumer?.lagMs ?? 0) / 1000),
    ),
    gauge(
      'perkv_webhook_stopped',
      '1 for a webhook that is parked, or has a gap: it needs a retry, a skip or a reset.',
      each(({ state }) => (state === 'parked' || state === 'gap' ? 1 : 0)),
    ),
  ]
}

function ofLeases({ leases }: Database): Family[] {
  const { held, waiting, grants, renewals, ends } = leases.summary()
  return [
    gauge('perkv_leases', 'Leases in force; bound: --leases-max.', held),
    gauge('perkv_lease_waits', 'Requests that wait for a lease; bound: --watches-max.', waiting),
    counter('perkv_lease_grants_total', 'Leases granted.', grants),
    counter('perkv_lease_renewals_total', 'Renewals of leases.', renewals),
    counter('perkv_lease_ends_total', 'Leases released by their holder, or run out.', [
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
      'Keys that wait for a worker.',
      per(({ pending }) => pending),
    ),
    gauge(
      'perkv_observer_claimed',
      'Keys that workers have claimed.',
      per(({ claimed }) => claimed),
    ),
    gauge(
      'perkv_observer_delayed',
      'Keys that wait for another attempt.',
      per(({ delayed }) => delayed),
    ),
    gauge(
      'perkv_observer_parked',
      'Keys that failed too often and wait for somebody to look.',
      per(({ parked }) => parked),
    ),
    gauge(
      'perkv_observer_lag_seconds',
      'Age of the oldest change not covered by a run.',
      per(({ lagMs }) => lagMs / 1000),
    ),
    counter(
      'perkv_observer_acks_total',
      'Runs committed.',
      per(({ acks }) => acks),
    ),
    counter(
      'perkv_observer_conflicts_total',
      'Runs refused.',
      per(({ conflicts }) => conflicts),
    ),
  ]
}

function secondsSince(now: number, ts: number): number {
  return Math.max(0, physicalMs(now) - physicalMs(ts)) / 1000
}
