import { pairCost } from '../bytes/answer-size.js'
import { afterKey, type KeyRange, mergedRanges } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import { type LazySignal, signalOf } from '../event-loop/lazy-signal.js'
import { onAbort } from '../event-loop/on-abort.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'
import { SCAN_PAGE, STREAM_PAGE_BYTES } from '../limits.js'
import type { Pair } from '../percolator/api.js'
import type { Change } from '../percolator/change.js'
import { belowSafePoint } from '../percolator/errors.js'
import type { ChangeLog, ChangePage } from '../store/change-log.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import type { Channel, Follower } from './channel.js'
import { CommittedTxn, changeBytes, feedChangeOf } from './committed-txn.js'
import type { Feed, FeedUser } from './feed.js'
import { withOldValues } from './old-values.js'
import type { PageReads } from './page-reads.js'
import { ChangeFilter } from './rules/change-filter.js'
import type { FeedEvent } from './rules/changes-api.js'
import { textOf } from './selection.js'
import { TxnParts } from './txn-parts.js'

/** A batch of events ends with the transaction that reaches this size. */
const BATCH_BYTES = 1024 * 1024
/** Transactions of the ring that one turn of the event loop looks at. */
const RECENT_AT_A_TIME = 1024

export interface StreamOrder {
  /** May overlap. undefined: every key. */
  readonly ranges: readonly KeyRange[] | undefined
  /** Starts with the pairs as of now, or with those at `ts` after `key`. */
  readonly snapshot: true | { readonly ts: Timestamp; readonly key: Uint8Array } | undefined
  readonly keysOnly: boolean
  readonly oldValues: boolean
  readonly heartbeatMs: number
  /** undefined: the stream has no end. */
  readonly waitMs: number | undefined
  readonly signal: LazySignal | undefined
}

export interface StreamSources {
  /** Reads wait for locks. */
  readonly store: Pick<Store, 'batchGet' | 'scan'>
  readonly log: ChangeLog
  readonly feed: Feed
  /** Shared by all streams. */
  readonly reads: PageReads
  readonly partBytesMax: number
}

export class ChangeStream implements Follower, FeedUser {
  rank = 0
  place = -1
  cursor = 0
  readonly #sources: StreamSources
  readonly #order: StreamOrder
  /** Everything at or below it was delivered, except what is in the queue of the channel. */
  #position: Timestamp
  /** commit_ts of the last transaction, or part of one, that was read from the log or the ring. */
  #reached: Timestamp = 0
  #channel: Channel | undefined
  /** The position before the channel's transactions whose old values are being read. */
  #readingFrom: Timestamp | undefined
  #hasCaughtUp = false
  #isOver = false
  #failure: { readonly error: unknown } | undefined
  #wake: (() => void) | undefined
  #endMs: number | undefined
  #toldMs = Number.NEGATIVE_INFINITY

  /** @param position exclusive; the timestamp of the snapshot, if there is one. */
  constructor(sources: StreamSources, order: StreamOrder, position: Timestamp) {
    this.#sources = sources
    this.#order = order
    this.#position = position
  }

  /** Everything at or below it was delivered. */
  get position(): Timestamp {
    const { resolved } = this.#sources.feed
    if (this.#readingFrom !== undefined) return this.#readingFrom
    return this.#channel === undefined
      ? this.#position
      : Math.max(this.#position, this.#channel.positionOf(this, resolved))
  }

  /** Whether every committed transaction was delivered. */
  get isCaughtUp(): boolean {
    return this.#hasCaughtUp && this.#channel !== undefined && this.position >= this.#sources.feed.resolved
  }

  // ---- Calls of the channel and the feed

  /** Ends the stream. */
  end(): void {
    this.#isOver = true
    this.wake()
  }

  fail(error: unknown): void {
    this.#failure ??= { error }
    this.wake()
  }

  wake(): void {
    const wake = this.#wake
    this.#wake = undefined
    if (wake === undefined) return
    this.#sources.feed.awake(this)
    wake()
  }

  fallBehind(position: Timestamp): void {
    this.#channel = undefined
    this.#position = Math.max(this.#position, position)
  }

  // ---- Events

  /** Yields batches that end with `resolved`, or within the transactions of one commit_ts. */
  async *events(): AsyncGenerator<readonly FeedEvent[], void> {
    const { feed } = this.#sources
    const signal = signalOf(this.#order.signal)
    if (signal?.aborted) return
    const unlisten = onAbort(signal, () => this.end())
    try {
      if (this.#order.snapshot !== undefined) yield* this.#snapshot(this.#order.snapshot)
      while (!this.#isOver) {
        if (this.#failure !== undefined) throw this.#failure.error
        if (this.#channel === undefined) yield* this.#catchUp()
        else if ((yield* this.#live(this.#channel)) === 'over') return
      }
    } finally {
      unlisten()
      this.#isOver = true
      this.#readingFrom = undefined
      if (this.#channel !== undefined) feed.leaveChannel(this, this.#channel)
      this.#channel = undefined
      feed.awake(this)
    }
  }

  async *#live(channel: Channel): AsyncGenerator<readonly FeedEvent[], 'over' | undefined> {
    const { feed } = this.#sources
    const { heartbeatMs, waitMs, keysOnly, oldValues } = this.#order
    const before = this.position
    const taken = channel.take(this, BATCH_BYTES, feed.resolved)
    if (taken !== undefined) {
      const txns = taken.txns.filter(({ commitTs }) => commitTs > this.#position)
      if (oldValues) {
        this.#readingFrom = before // Collection must keep the versions before these changes.
        yield* this.#withOld(
          txns.flatMap(({ changes }) => changes),
          taken.upTo,
        )
        this.#readingFrom = undefined
      } else if (txns.length > 0) {
        const events: FeedEvent[] = txns.map((txn) => txn.event(keysOnly))
        events.push(this.#resolvedEvent(taken.upTo))
        yield events
      }
      return
    }
    const now = performance.now()
    if (!this.#hasCaughtUp) {
      this.#hasCaughtUp = true
      if (waitMs !== undefined) this.#endMs = now + waitMs
      yield [this.#resolvedEvent(feed.resolved)]
      return
    }
    if (this.#endMs !== undefined && now >= this.#endMs) return 'over'
    if (now >= this.#toldMs + heartbeatMs) {
      yield [this.#resolvedEvent(feed.resolved)]
      return
    }
    await new Promise<void>((wake) => {
      this.#wake = wake
      channel.wait(this)
      feed.wakeAt(this, Math.min(this.#toldMs + heartbeatMs, this.#endMs ?? Number.POSITIVE_INFINITY))
    })
  }

  /**
   * A `resolved` event: everything at or below `ts` was delivered, or is in this batch. A stream that begins above resolved_ts
   * reports its begin, because a commit between the two may still come, though not on this stream.
   */
  #resolvedEvent(ts: Timestamp): FeedEvent {
    const { feed } = this.#sources
    this.#position = Math.max(this.#position, ts)
    this.#toldMs = performance.now()
    if (this.#position <= feed.resolved) return feed.resolvedEvent(this.#position)
    return { type: 'resolved', resolvedTs: feed.resolved, isBeforeBegin: true }
  }

  // ---- Behind

  /** Reads the log until the stream can join its channel. */
  async *#catchUp(): AsyncGenerator<readonly FeedEvent[], void> {
    const { feed } = this.#sources
    const { ranges } = this.#order
    const filter = new ChangeFilter(ranges)
    const name = textOf(ranges)
    const slicer = new TimeSlicer(1)
    while (!this.#isOver && this.#failure === undefined) {
      const busy = feed.betweenGroups()
      if (busy !== undefined) {
        await busy
        continue
      }
      if (this.#position >= feed.resolved) {
        this.#channel = feed.join(this, name, ranges)
        return
      }
      const recent = feed.recent(this.#position)
      if (recent !== undefined) yield* this.#fromRing(recent, filter)
      else {
        const { start } = this.#sources.log
        if (this.#position < start) throw belowSafePoint(this.#position, start)
        yield* this.#fromLog(feed.resolved)
      }
      const pause = slicer.next()
      if (pause !== undefined) await pause
    }
  }

  async *#fromRing(recent: Iterable<CommittedTxn>, filter: ChangeFilter): AsyncGenerator<readonly FeedEvent[], void> {
    const { keysOnly, oldValues } = this.#order
    const txns: CommittedTxn[] = []
    let upTo = this.#sources.feed.resolved
    let [bytes, count] = [0, 0]
    let last: CommittedTxn | undefined
    for (const txn of recent) {
      if ((bytes >= BATCH_BYTES || count >= RECENT_AT_A_TIME) && txn.commitTs !== last?.commitTs) {
        upTo = txn.commitTs - 1
        break
      }
      count++
      last = txn
      const part = within(txn, filter)
      if (part === undefined) continue
      txns.push(part)
      bytes += part.bytes
    }
    if (oldValues) {
      yield* this.#withOld(
        txns.flatMap(({ changes }) => changes),
        upTo,
      )
      return
    }
    const events: FeedEvent[] = txns.map((txn) => txn.event(keysOnly))
    yield* this.#batch(events, upTo)
  }

  async *#fromLog(upTo: Timestamp): AsyncGenerator<readonly FeedEvent[], void> {
    const { log, reads, partBytesMax } = this.#sources
    const { ranges, keysOnly, oldValues } = this.#order
    const parts = new TxnParts(partBytesMax)
    const filter = new ChangeFilter(ranges)
    const merged = ranges && mergedRanges(ranges)
    const read = log.read({ since: this.#position, upTo, ranges: merged, keysOnly })
    const reading = {
      pageBytes: ({ changes }: ChangePage): number => changes.reduce((sum, change) => sum + changeBytes(change), 0),
      keptBytes: () => parts.keptBytes,
      isOver: () => this.#isOver || this.#failure !== undefined,
    }
    for await (const page of reads.pages(read, reading)) {
      const changes = page.changes.flatMap((change): readonly Change[] =>
        change.type === 'delete_range' ? filter.clip(change) : [change],
      )
      if (oldValues) yield* this.#addWithOld(parts, changes)
      else
        for (const change of changes)
          parts.add(change.commitTs, change.startTs, feedChangeOf(change, keysOnly), changeBytes(change))
      parts.endUpTo(page.upTo)
      yield* this.#batch(parts.take(), page.upTo)
      if (this.#isOver || this.#failure !== undefined) return
    }
  }

  async *#withOld(changes: readonly Change[], upTo: Timestamp): AsyncGenerator<readonly FeedEvent[], void> {
    const parts = new TxnParts(this.#sources.partBytesMax)
    yield* this.#addWithOld(parts, changes)
    parts.endUpTo(upTo)
    yield* this.#batch(parts.take(), upTo)
  }

  async *#addWithOld(parts: TxnParts, changes: readonly Change[]): AsyncGenerator<readonly FeedEvent[], void> {
    for await (const portion of withOldValues(this.#sources, changes, this.#order.keysOnly)) {
      if (this.#isOver) return
      for (const { source, change, bytes } of portion) parts.add(source.commitTs, source.startTs, change, bytes)
      if (parts.readyBytes < BATCH_BYTES) continue
      const events = parts.take()
      this.#reached = events.at(-1)?.commitTs ?? this.#reached
      yield events
    }
  }

  *#batch(events: FeedEvent[], upTo: Timestamp): Generator<readonly FeedEvent[], void> {
    const last = events.at(-1)
    if (last?.type === 'txn') this.#reached = last.commitTs
    // Otherwise the rest of a transaction, or another one of the same commit_ts, is still to come.
    const isWhole = this.#reached <= upTo
    const isDue = events.length > 0 || performance.now() >= this.#toldMs + this.#order.heartbeatMs
    if (isWhole && isDue) events.push(this.#resolvedEvent(upTo))
    if (isWhole) this.#position = Math.max(this.#position, upTo)
    if (events.length > 0) yield events
  }

  // ---- Snapshot

  async *#snapshot(
    from: true | { readonly ts: Timestamp; readonly key: Uint8Array },
  ): AsyncGenerator<readonly FeedEvent[], void> {
    const { feed, reads } = this.#sources
    const ts = this.#position
    while (feed.resolved < ts && !this.#isOver) await this.#passed()
    const after = from === true ? undefined : afterKey(from.key)
    const reading = {
      pageBytes: (pairs: readonly Pair[]): number => pairs.reduce((sum, pair) => sum + pairCost(pair), 0),
      isOver: () => this.#isOver,
    }
    for await (const pairs of reads.pages(this.#pairs(ts, after), reading))
      yield pairs.map(({ key, value, commitTs, expireTs }): FeedEvent => {
        const expiring = expireTs === undefined ? {} : { expireTs }
        return { type: 'pair', ts, key, ...(value === undefined ? {} : { value }), commitTs, ...expiring }
      })
    if (this.#isOver) return
    yield [{ type: 'snapshot_end', ts }, this.#resolvedEvent(ts)]
  }

  /** Yields the pairs of a snapshot, page by page. */
  async *#pairs(ts: Timestamp, after: Uint8Array | undefined): AsyncGenerator<readonly Pair[], void> {
    const { keysOnly, ranges } = this.#order
    for (const range of mergedRanges(ranges ?? [{}])) {
      let start = range.start
      if (after !== undefined && (start === undefined || keyText(start) < keyText(after))) start = after
      if (start !== undefined && range.end !== undefined && keyText(start) >= keyText(range.end)) continue
      for (let isMore = true; isMore; ) {
        const { pairs, isCut } = await this.#sources.store.scan({
          start,
          end: range.end,
          limit: SCAN_PAGE,
          ts,
          keyOnly: keysOnly,
          bytesMax: STREAM_PAGE_BYTES,
        })
        const last = pairs.at(-1)
        isMore = last !== undefined && (isCut === true || pairs.length === SCAN_PAGE)
        if (last !== undefined) start = afterKey(last.key)
        if (pairs.length > 0) yield pairs
      }
    }
  }

  /** Waits until resolved_ts may have moved. */
  async #passed(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure.error
    await new Promise<void>((wake) => {
      this.#wake = wake
      this.#sources.feed.wakeAt(this, performance.now())
    })
  }
}

function within(txn: CommittedTxn, filter: ChangeFilter): CommittedTxn | undefined {
  const { changes } = txn
  if (changes.every((change) => change.type !== 'delete_range' && filter.has(change))) return txn
  const some = changes.flatMap((change): Change[] => {
    if (change.type === 'delete_range') return filter.clip(change)
    return filter.has(change) ? [change] : []
  })
  return some.length === 0 ? undefined : new CommittedTxn(some)
}
