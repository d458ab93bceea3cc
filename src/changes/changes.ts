import type { LockResolver, Waiting } from '../coordinator/lock-resolver.js'
import { integerOf } from '../errors/integer-of.js'
import { invalid, KvError } from '../errors/kv-error.js'
import type { LockInfo } from '../errors/lock-info.js'
import {
  FEED_LIMIT_DEFAULT,
  FEED_LIMIT_MAX,
  FEED_WAIT_MS_MAX,
  HEARTBEAT_MS_DEFAULT,
  HEARTBEAT_MS_MAX,
  HEARTBEAT_MS_MIN,
  type Limits,
} from '../limits.js'
import { keyRangeOf } from '../percolator/given-range.js'
import { expiresInMs } from '../percolator/lock.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { ChangeStream, type StreamOrder } from './change-stream.js'
import type { Consumers } from './consumers.js'
import { Feed } from './feed.js'
import { PageOfTxns, type PageSizes } from './page-of-txns.js'
import { PageReads } from './page-reads.js'
import { requireTold } from './require-told.js'
import type {
  ChangesApi,
  FeedEvent,
  FeedOptions,
  FeedPage,
  KeyState,
  PageRequest,
  StreamRequest,
  WatchRequest,
} from './rules/changes-api.js'
import { rangesOf } from './selection.js'
import { Watches } from './watches.js'

/** Locks are reported when their transactions are older than this. */
const HELD_MS = 2000
const NAMED_MAX = 16
/** Longest wait of a stream for a transaction that holds a lock on a shared store. */
const LOCK_WAIT_MS = 60_000

export interface ChangesOptions {
  readonly limits: Pick<Limits, 'feedBytesMax' | 'pageBytesMax' | 'answerBytesMax' | 'holdMsMax'>
  readonly consumers: Consumers
  readonly resolver: Pick<LockResolver, 'reading'>
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

/** Keeps changes from collection: the safe point must not pass `ts`. */
export interface ChangesHolder {
  readonly by: 'feed' | 'consumer'
  readonly ts: Timestamp
}

export interface HoldingLock extends LockInfo {
  /** Time until its TTL ends. */
  readonly expiresInMs: number
}

export interface FeedStatus {
  /** 0: the feed has no reader. */
  readonly resolvedTs: Timestamp
  /** How far resolved_ts is behind because locks hold it back; on a shared store, whatever holds it back. */
  readonly lagMs: number
  /** Locks of transactions that are over two seconds old, whether or not the feed has readers. */
  readonly heldBackBy: readonly HoldingLock[]
  /** Number of streams that have caught up. */
  readonly live: number
  readonly behind: number
}

const NO_FEED: Pick<Feed, 'resolved' | 'live' | 'isRunning'> = { resolved: 0, live: 0, isRunning: false }

export class Changes implements ChangesApi {
  readonly consumers: Consumers
  /** Requests that wait for a change of a key. */
  readonly watches: Watches
  readonly #store: Store
  readonly #options: ChangesOptions
  /** Created when it is first needed. */
  #feed: Feed | undefined
  readonly #reads: PageReads
  /** Below resolved_ts a shared store may still have locks: of transactions that are over, or commit later. */
  readonly #snapshots: Pick<Store, 'batchGet' | 'scan'>
  readonly #streams = new Set<ChangeStream>()

  constructor(store: Store, options: ChangesOptions) {
    this.#store = store
    this.consumers = options.consumers
    this.#options = options
    this.#reads = new PageReads(store.answers)
    const { resolver } = options
    const waiting = (): Waiting => ({ lockWaitMs: LOCK_WAIT_MS })
    this.#snapshots = {
      batchGet: async (request) => resolver.reading(() => store.batchGet(request), waiting),
      scan: async (request) => resolver.reading(() => store.scan(request), waiting),
    }
    this.watches = new Watches(store, (request) =>
      resolver.reading(
        () => store.get(request),
        () => ({ lockWaitMs: 0 }),
      ),
    )
  }

  stream(request: StreamRequest): AsyncGenerator<readonly FeedEvent[], void> {
    const { signal, waitMs, heartbeatMs = HEARTBEAT_MS_DEFAULT, snapshotAfter, snapshot = false } = request
    const opened: Opened = {}
    const events = this.#events(
      request,
      {
        snapshot: snapshotAfter ?? (snapshot ? true : undefined),
        heartbeatMs: integerOf('heartbeat_ms', heartbeatMs, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
        waitMs: waitMs === undefined ? undefined : integerOf('wait_ms', waitMs, 0, FEED_WAIT_MS_MAX),
        signal,
      },
      opened,
    )
    // A generator only returns after its present step, which may be a wait for the next event.
    const end = events.return.bind(events)
    events.return = (value) => {
      opened.stream?.end()
      return end(value)
    }
    return events
  }

  async *#events(
    request: FeedOptions,
    how: Pick<StreamOrder, 'snapshot' | 'heartbeatMs' | 'waitMs' | 'signal'>,
    opened: Opened,
  ): AsyncGenerator<readonly FeedEvent[], void> {
    const { sinceTs, keysOnly = false, oldValues = false } = request
    const { snapshot } = how
    if (snapshot === true && sinceTs !== undefined)
      throw invalid('since_ts', 'a snapshot is as of now: since_ts cannot be given with it')
    const consumer = request.consumer === undefined ? undefined : await this.consumers.get(request.consumer)
    const selected = rangesOf(request)
    if (consumer !== undefined && selected !== undefined)
      throw invalid('consumer', 'a consumer has a range of its own: give no other')
    const ranges = consumer === undefined ? selected : [keyRangeOf(consumer.range)]
    if (typeof snapshot === 'object' && snapshot.ts > this.#store.time.clock())
      throw invalid('Last-Event-ID', 'the snapshot of Last-Event-ID is in the future')
    const begin = consumer === undefined ? sinceTs : this.consumers.beginOf(consumer.name, sinceTs)
    const since = typeof snapshot === 'object' ? snapshot.ts : snapshot ? undefined : begin
    const user = { fail: (error: unknown) => opened.stream?.fail(error) }
    const { log } = this.#store
    await log.begin()
    this.#feed ??= new Feed({ store: this.#store, log, ...this.#options })
    const feed = this.#feed
    feed.enter(user, feed.isRunning ? feed.resolved : await log.resolve(since === undefined ? since : since + 1))
    try {
      // A look at the logs of other servers takes its time, which a reader that is behind need not wait for.
      const isBehind = log.prompt === undefined && since !== undefined && since < feed.resolved
      const now = isBehind ? feed.resolved : await feed.refresh()
      // A collection may have passed locks that resolved_ts has not: a snapshot waits for it.
      const position = since ?? (snapshot === undefined ? now : Math.max(feed.resolved, log.start))
      requireTold(this.#store, position)
      opened.since = position
      const sources = {
        store: this.#snapshots,
        log,
        feed,
        reads: this.#reads,
        partBytesMax: this.#options.limits.pageBytesMax,
      }
      opened.stream = new ChangeStream(sources, { ...how, ranges, keysOnly, oldValues }, position)
      this.#streams.add(opened.stream)
      yield* opened.stream.events()
    } finally {
      if (opened.stream !== undefined) this.#streams.delete(opened.stream)
      feed.leave(user)
    }
  }

  /** @param sizes bounds of a page, and of what is kept together in memory. */
  async page(request: PageRequest, sizes: Partial<Omit<PageSizes, 'limit'>> = {}): Promise<FeedPage> {
    const limit = integerOf('limit', request.limit ?? FEED_LIMIT_DEFAULT, 1, FEED_LIMIT_MAX)
    const waitMs = integerOf('wait_ms', request.waitMs ?? 0, 0, FEED_WAIT_MS_MAX)
    const { pageBytesMax, answerBytesMax } = this.#options.limits
    const page = new PageOfTxns({ limit, bytesMax: pageBytesMax, heldMax: answerBytesMax, ...sizes })
    const opened: Opened = {}
    let resolvedTs: Timestamp = 0
    const how = { snapshot: undefined, heartbeatMs: HEARTBEAT_MS_MAX, waitMs, signal: request.signal }
    const events = this.#events(request, how, opened)
    let isToEnd = true
    try {
      for (let next = await events.next(); !next.done; next = await events.next()) {
        resolvedTs = this.#resolved
        for (const [i, event] of next.value.entries()) {
          if (event.type === 'txn' || event.type === 'resolved') page.add(event)
          const { long } = page
          if (long === undefined) continue
          isToEnd = false
          const nextTs = opened.since ?? 0
          const rest = this.#rest(long.commitTs, next.value.slice(i + 1), events)
          // A generator that was never started runs no `finally`.
          const end = rest.return.bind(rest)
          rest.return = async (ends) => {
            await events.return()
            return end(ends)
          }
          return { txns: long.txns, resolvedTs: nextTs, nextTs, rest }
        }
        if (page.isFull || (page.txns.length > 0 && opened.stream?.isCaughtUp)) break
      }
    } finally {
      if (isToEnd) await events.return()
    }
    const { txns, isFull } = page
    const nextTs = Math.max(opened.since ?? 0, page.nextTs)
    return { txns, resolvedTs: isFull ? resolvedTs : Math.min(resolvedTs, nextTs), nextTs }
  }

  /** @param batch was read already. @throws KvError when the stream ends within the transactions of `commitTs`. */
  async *#rest(
    commitTs: Timestamp,
    batch: readonly FeedEvent[],
    events: AsyncGenerator<readonly FeedEvent[], void>,
  ): NonNullable<FeedPage['rest']> {
    try {
      for (let some = batch; ; ) {
        for (const event of some) {
          if (event.type === 'resolved' && event.resolvedTs < commitTs) continue
          if (event.type !== 'txn' || event.commitTs !== commitTs)
            return { resolvedTs: this.#resolved, nextTs: commitTs }
          const { type: _, ...txn } = event
          yield txn
        }
        const next = await events.next()
        if (next.done) throw new KvError('storage_unavailable', 'the feed ended within a transaction', {})
        some = next.value
      }
    } finally {
      await events.return()
    }
  }

  watch(request: WatchRequest): AsyncGenerator<KeyState, void> {
    return this.watches.states(request)
  }

  /** The timestamps above which the feed's readers need changes kept. */
  *holders(): Generator<ChangesHolder> {
    const oldest = this.#store.time.ago(this.#options.limits.holdMsMax)
    let lowest: Timestamp | undefined
    for (const { position } of this.#streams)
      if (position >= oldest && position < (lowest ?? Number.POSITIVE_INFINITY)) lowest = position
    if (lowest !== undefined) yield { by: 'feed', ts: lowest }
    yield* this.consumers.holders()
  }

  get status(): FeedStatus {
    const { resolved, live, isRunning } = this.#feed ?? NO_FEED
    const now = this.#store.now()
    const heldBackBy = this.#heldBackBy(now)
    // Without a prompt log nothing tells why it is behind.
    const isHeld = isRunning && (heldBackBy.length > 0 || this.#store.log.prompt === undefined)
    const lagMs = isHeld ? Math.max(0, physicalMs(now) - physicalMs(resolved)) : 0
    return { resolvedTs: isRunning ? resolved : 0, lagMs, heldBackBy, live, behind: this.#streams.size - live }
  }

  get #resolved(): Timestamp {
    return (this.#feed ?? NO_FEED).resolved
  }

  #heldBackBy(now: Timestamp): HoldingLock[] {
    return this.#store.log
      .heldBackBy(NAMED_MAX)
      .filter(({ startTs }) => physicalMs(now) - physicalMs(startTs) >= HELD_MS)
      .map((lock) => ({ ...lock, expiresInMs: expiresInMs({ startTs: lock.startTs, ttlMs: lock.ttl }, now) }))
  }

  /** Ends all streams and watches. */
  close(): void {
    this.watches.close()
    for (const stream of [...this.#streams]) stream.end()
  }
}

/** The stream of a request, once it is open, and where it begins. */
interface Opened {
  stream?: ChangeStream
  since?: Timestamp
}
