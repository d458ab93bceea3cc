import { ByteSlabs } from '../bytes/byte-slabs.js'
import { keyText } from '../bytes/key-text.js'
import { isKvError } from '../errors/kv-error.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'
import type { Limits } from '../limits.js'
import { type Change, isSameTxn, type LoggedChange } from '../percolator/change.js'
import { RangeIndex } from '../percolator/range-index.js'
import type { ChangeListener, ChangeLog, PromptLog } from '../store/change-log.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { Channel, type Follower } from './channel.js'
import { CommittedTxn, changeBytes } from './committed-txn.js'
import { PendingChanges } from './pending-changes.js'
import { Ring } from './ring.js'
import type { FeedEvent } from './rules/changes-api.js'
import { Wakes } from './wakes.js'

/** Interval at which resolved_ts is taken while the feed has users. */
const TICK_MS = 100
/** Streams due within this time are woken together. */
const DUE_MS = 10
/** Pending changes handed on at a time. */
const CHANGES_AT_A_TIME = 256
/** A group of one commit_ts with more changes is read from the log. */
const GROUP_MAX = 16_384
/** Shortest interval between two reads of the log. */
const LOG_MS = 20

export interface FeedSources {
  readonly store: Store
  readonly log: ChangeLog
  readonly limits: Pick<Limits, 'feedBytesMax' | 'pageBytesMax'>
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

export interface FeedUser {
  /** The feed has failed for good. */
  fail(error: unknown): void
}

/**
 * Follows resolved_ts while it has users, keeps the last committed transactions, and hands them to live streams. Changes come
 * from the store as they commit, and from its log where the store may not have reported some, or reports none.
 */
export class Feed {
  readonly #sources: FeedSources
  readonly #users = new Set<FeedUser>()
  readonly #channels = new Map<string, Channel>()
  readonly #index = new RangeIndex<Channel>()
  /** Channels with a queue, in order of their first transactions. */
  readonly #queues = new Set<Channel>()
  readonly #ring = new Ring()
  readonly #pending = new PendingChanges()
  readonly #slabs = new ByteSlabs()
  #resolved: Timestamp = 0
  /** Changes at or below it come from the log. */
  #uncovered: Timestamp = 0
  #resolvedEvent: FeedEvent = { type: 'resolved', resolvedTs: 0 }
  /** Incremented each time that the last user leaves. */
  #epoch = 0
  #stopListening = (): void => {}
  #tick: NodeJS.Timeout | undefined
  #tickMs = 0
  #isAdvanceDue = false
  #running: Promise<void> | undefined
  #next: Promise<void> | undefined
  #fresh: Promise<Timestamp> | undefined
  #logReadMs = 0
  /** Transactions of one commit_ts are being matched: no stream may join. */
  #isMatching = false
  #betweenGroups: (() => void)[] = []
  #group: Group | undefined
  readonly #wakes = new Wakes()

  constructor(sources: FeedSources) {
    this.#sources = sources
  }

  /** Everything at or below it was handed to live streams, or is in the ring or in the log. */
  get resolved(): Timestamp {
    return this.#resolved
  }
  get isRunning(): boolean {
    return this.#users.size > 0
  }
  get live(): number {
    let live = 0
    for (const channel of this.#channels.values()) live += channel.size
    return live
  }

  // ---- Users

  /** @param resolved of the store. */
  enter(user: FeedUser, resolved: Timestamp): void {
    if (this.#users.size === 0) this.#start(Math.max(resolved, this.#resolved))
    this.#users.add(user)
  }

  leave(user: FeedUser): void {
    if (this.#users.delete(user) && this.#users.size === 0) this.#stop()
  }

  #start(resolved: Timestamp): void {
    const { prompt } = this.#sources.log
    this.#become(resolved)
    this.#uncovered = Math.max(resolved, this.#newest)
    this.#ring.clear(resolved)
    this.#stopListening = prompt?.listen(this.#listener()) ?? (() => {})
    this.#schedule()
  }

  /** Upper bound of what the store may have failed to report. */
  get #newest(): Timestamp {
    return this.#sources.log.prompt?.newest ?? Number.POSITIVE_INFINITY
  }

  #stop(): void {
    this.#epoch++
    this.#stopListening()
    clearTimeout(this.#tick)
    this.#tick = undefined
    this.#pending.clear()
    this.#ring.clear(0)
    this.#slabs.clear()
  }

  #listener(): ChangeListener {
    return {
      onCommitted: (changes) => {
        for (const change of changes) {
          // A client that commits its primary before its other prewrites can commit below what streams have passed.
          if (change.commitTs <= Math.max(this.#uncovered, this.#resolved)) continue
          this.#pending.add(this.#copyOf(change))
          // The other changes are not even copied then.
          if (this.#pending.bytes > this.#sources.limits.feedBytesMax) this.#fallBackOnLog()
        }
        this.#advanceSoon()
      },
      reloaded: () => this.#fallBackOnLog(),
    }
  }

  #copyOf(change: LoggedChange): LoggedChange {
    const { commitTs, startTs } = change
    const key = this.#slabs.copyOf(change.key)
    if (change.type === 'delete_range')
      return { type: change.type, key, end: this.#slabs.copyOf(change.end), commitTs, startTs }
    const value = change.value && this.#slabs.copyOf(change.value)
    return { type: change.type, key, commitTs, startTs, value, expireTs: change.expireTs }
  }

  /** Reads the changes up to the newest one from the log instead of memory. */
  #fallBackOnLog(): void {
    this.#pending.clear()
    this.#uncovered = Math.max(this.#uncovered, this.#newest)
  }

  // ---- Time

  #schedule(): void {
    const now = performance.now()
    const due = this.#wakes.firstMs ?? Number.POSITIVE_INFINITY
    const at = Math.max(now + DUE_MS, Math.min(now + TICK_MS, due))
    if (this.#tick !== undefined && this.#tickMs <= at) return
    clearTimeout(this.#tick)
    this.#tickMs = at
    this.#tick = setTimeout(() => this.#onTick(), at - now)
    this.#tick.unref()
  }

  #onTick(): void {
    this.#tick = undefined
    if (!this.isRunning) return
    this.#schedule()
    const { store, log } = this.#sources
    const clock = store.time.clock()
    // A version may expire while no request takes a timestamp.
    const isExpiring = this.#resolved < clock && log.prompt?.mayExpire(this.#resolved, clock)
    this.#run(isExpiring ? this.refresh() : this.advance())
    const due = this.#wakes.takeDue(performance.now())
    // What each tick takes from the logs of other servers comes late, and not at all while the store does not answer.
    if (log.prompt === undefined) this.#wakes.wake(due)
    else if (due.length > 0) this.#run(this.refresh().finally(() => this.#wakes.wake(due)))
  }

  /** Wakes the follower at this time, by `performance.now`, unless it is woken before. */
  wakeAt(follower: Follower, ms: number): void {
    this.#wakes.at(follower, ms)
    if (this.isRunning) this.#schedule()
  }

  awake(follower: Follower): void {
    this.#wakes.forget(follower)
  }

  // ---- resolved_ts

  #advanceSoon(): void {
    if (this.#isAdvanceDue) return
    this.#isAdvanceDue = true
    setImmediate(() => {
      this.#isAdvanceDue = false
      if (this.isRunning) this.#run(this.advance())
    })
  }

  /** Raises resolved_ts to a fresh timestamp, unless locks hold it back. @throws KvError `storage_unavailable` */
  refresh(): Promise<Timestamp> {
    this.#fresh ??= this.#refresh()
    return this.#fresh
  }

  async #refresh(): Promise<Timestamp> {
    let ts: Timestamp
    try {
      ts = await this.#sources.store.readTs()
    } finally {
      this.#fresh = undefined
    }
    await this.advance()
    return ts
  }

  /** Takes resolved_ts and hands on the changes at or below it. */
  advance(): Promise<void> {
    if (this.#running === undefined) {
      const running = this.#advance(this.#epoch).finally(() => {
        this.#running = undefined
      })
      this.#running = running
      return running
    }
    this.#next ??= this.#running
      .catch(() => {})
      .then(() => {
        this.#next = undefined
        return this.advance()
      })
    return this.#next
  }

  async #advance(epoch: number): Promise<void> {
    const { log } = this.#sources
    const upTo = await log.resolve()
    // A log of many servers answers once it may have moved: by then the next question waits already.
    if (log.prompt === undefined) this.#advanceSoon()
    if (epoch !== this.#epoch || upTo <= this.#resolved) return
    try {
      const { prompt } = log
      if (prompt && this.#resolved >= this.#uncovered && (await this.#fromPending(prompt, upTo, epoch))) return
      await this.#fromLog(upTo, epoch)
    } catch (error) {
      if (epoch !== this.#epoch) return
      this.#fallBackOnLog()
      if (!isKvError(error, 'ts_below_safe_point')) throw error
      await this.#beginAnew(epoch)
    } finally {
      this.#group = undefined
      this.#endMatching()
    }
  }

  /** @returns false when the log must be read. */
  async #fromPending(log: PromptLog, upTo: Timestamp, epoch: number): Promise<boolean> {
    if (!(await this.#addExpiries(log, upTo, epoch))) return false
    for (const slicer = new TimeSlicer(1); ; await slicer.next()) {
      if (epoch !== this.#epoch) return true
      if (this.#resolved < this.#uncovered) return false
      const taken = this.#pending.take(upTo, CHANGES_AT_A_TIME, GROUP_MAX)
      if (taken === undefined) {
        this.#fallBackOnLog()
        return false
      }
      const last = taken.at(-1)
      if (last === undefined) break
      for await (const page of taken.some(lacksValue) ? log.withValues(taken) : [taken])
        for (const change of page) {
          if (epoch !== this.#epoch) return true
          await this.#add(change)
        }
      if (epoch !== this.#epoch) return true
      await this.#endUpTo(last.commitTs)
    }
    this.#setResolved(upTo)
    return true
  }

  /** @returns false when they are too many to be kept. */
  async #addExpiries(log: PromptLog, upTo: Timestamp, epoch: number): Promise<boolean> {
    const { limits } = this.#sources
    if (!log.mayExpire(this.#resolved, upTo)) return true
    for await (const page of log.expiries(this.#resolved, upTo))
      for (const change of page) {
        if (epoch !== this.#epoch) return true
        this.#pending.add(change)
        if (this.#pending.bytes <= limits.feedBytesMax) continue
        this.#fallBackOnLog()
        return false
      }
    return true
  }

  async #fromLog(upTo: Timestamp, epoch: number): Promise<void> {
    const restMs = this.#logReadMs + LOG_MS - performance.now()
    if (restMs > 0) await new Promise((resolve) => setTimeout(resolve, restMs))
    if (epoch !== this.#epoch) return
    for await (const page of this.#sources.log.read({ since: this.#resolved, upTo })) {
      for (const change of page.changes) {
        if (epoch !== this.#epoch) return
        await this.#add(change)
      }
      if (epoch !== this.#epoch) return
      await this.#endUpTo(page.upTo)
    }
    this.#logReadMs = performance.now()
    const slicer = new TimeSlicer(1)
    while (epoch === this.#epoch && this.#pending.drop(upTo, CHANGES_AT_A_TIME)) await slicer.next()
    if (epoch === this.#epoch) this.#setResolved(upTo)
  }

  /**
   * Restarts at the present resolved_ts, without its streams: changes that they have not delivered may have been collected, also
   * some that the feed has not read.
   */
  async #beginAnew(epoch: number): Promise<void> {
    const resolved = await this.#sources.log.resolve()
    if (epoch !== this.#epoch) return
    for (const channel of [...this.#channels.values()]) {
      this.#wakes.wake(channel.dismissAll(this.#resolved))
      this.#forget(channel)
    }
    this.#setResolved(resolved)
    this.#ring.clear(resolved)
  }

  #setResolved(ts: Timestamp): void {
    if (ts > this.#resolved) this.#become(ts)
  }

  #become(resolved: Timestamp): void {
    this.#resolved = resolved
    this.#resolvedEvent = { type: 'resolved', resolvedTs: resolved }
  }

  /** @returns the same object for all streams. */
  resolvedEvent(ts: Timestamp): FeedEvent {
    return ts === this.#resolved ? this.#resolvedEvent : { type: 'resolved', resolvedTs: ts }
  }

  // ---- Groups: the transactions of one commit_ts

  async #add(change: Change): Promise<void> {
    if (this.#group !== undefined && this.#group.commitTs !== change.commitTs) await this.#endGroup(this.#group)
    this.#group ??= { commitTs: change.commitTs, changes: [], bytes: 0, large: undefined }
    const group = this.#group
    if (group.large !== undefined) {
      this.#matchLarge(change, group.large)
      return
    }
    group.changes.push(change)
    group.bytes += changeBytes(change)
    if (group.bytes <= this.#groupBytesMax && group.changes.length <= GROUP_MAX) return
    this.#isMatching = true
    group.large = new Set()
    const slicer = new TimeSlicer()
    for (const each of group.changes) {
      const pause = slicer.next()
      if (pause !== undefined) await pause
      this.#matchLarge(each, group.large)
    }
    group.changes = []
  }

  get #groupBytesMax(): number {
    const { pageBytesMax, feedBytesMax } = this.#sources.limits
    return Math.min(pageBytesMax, feedBytesMax / 4)
  }

  #matchLarge(change: Change, channels: Set<Channel>): void {
    for (const channel of this.#channelsOf(change)) channels.add(channel)
  }

  #channelsOf(change: Change): Iterable<Channel> {
    if (change.type !== 'delete_range') return this.#index.at(keyText(change.key))
    return [...this.#channels.values()].filter(({ filter }) => filter.has(change))
  }

  async #endUpTo(ts: Timestamp): Promise<void> {
    if (this.#group !== undefined && this.#group.commitTs <= ts) await this.#endGroup(this.#group)
    this.#setResolved(ts)
  }

  async #endGroup({ commitTs, changes, large }: Group): Promise<void> {
    this.#group = undefined
    if (large === undefined) await this.#handOn(changes)
    else {
      for (const channel of this.#queues) this.#drop(channel)
      this.#queues.clear()
      this.#ring.clear(commitTs)
      for (const channel of large) {
        this.#wakes.wake(channel.dismissAll(this.#resolved))
        this.#forget(channel)
      }
    }
    this.#setResolved(commitTs)
    this.#endMatching()
  }

  async #handOn(changes: readonly Change[]): Promise<void> {
    this.#isMatching = true
    const slicer = new TimeSlicer()
    const matched: { readonly txn: CommittedTxn; readonly channels: Map<Channel, CommittedTxn> }[] = []
    for (const of of txnsOf(changes)) {
      const txn = new CommittedTxn(of)
      const touched: Channel[] = []
      for (const change of of) {
        const pause = slicer.next()
        if (pause !== undefined) await pause
        for (const channel of this.#channelsOf(change)) if (channel.match(txn, change)) touched.push(channel)
      }
      matched.push({ txn, channels: new Map(touched.map((channel) => [channel, channel.takeMatched(txn)])) })
    }
    for (const { txn, channels } of matched) {
      const number = this.#ring.push(txn)
      for (const [channel, part] of channels) this.#push(channel, part, number)
    }
    // Set before a stream takes them; otherwise it would report a resolved_ts below what it has delivered.
    this.#setResolved((changes[0] as Change).commitTs)
    for (const { channels } of matched) for (const channel of channels.keys()) this.#wakes.wake(channel.takeWaiting())
    const { feedBytesMax } = this.#sources.limits
    this.#ring.shrink(feedBytesMax - this.#pending.bytes)
    for (const channel of this.#queues) {
      if (!channel.isEmpty && channel.firstNumber > this.#ring.dropped) break
      this.#drop(channel)
    }
  }

  #push(channel: Channel, txn: CommittedTxn, number: number): void {
    if (channel.size === 0) return
    if (channel.isFull) this.#drop(channel)
    if (channel.isEmpty) {
      this.#queues.delete(channel)
      this.#queues.add(channel)
    }
    channel.push(txn, number)
  }

  #drop(channel: Channel): void {
    this.#queues.delete(channel)
    this.#wakes.wake(channel.drop())
    this.#forget(channel)
  }

  #endMatching(): void {
    this.#isMatching = false
    for (const go of this.#betweenGroups.splice(0)) go()
  }

  // ---- Streams

  /** @returns undefined when a stream may join in this turn; otherwise await it and ask again. */
  betweenGroups(): Promise<void> | undefined {
    if (!this.#isMatching) return undefined
    return new Promise((go) => this.#betweenGroups.push(go))
  }

  /**
   * Hands everything above the present resolved_ts to the follower. Must not be called while `betweenGroups` returns a promise.
   */
  join(follower: Follower, name: string, ranges: Channel['ranges']): Channel {
    let channel = this.#channels.get(name)
    if (channel === undefined) {
      channel = new Channel(name, ranges)
      this.#channels.set(name, channel)
      for (const range of ranges ?? EVERYTHING) this.#index.add(range, channel)
    }
    channel.join(follower)
    return channel
  }

  leaveChannel(follower: Follower, channel: Channel): void {
    channel.leave(follower)
    this.#forget(channel)
  }

  #forget(channel: Channel): void {
    if (channel.size > 0 || this.#channels.get(channel.name) !== channel) return
    this.#channels.delete(channel.name)
    this.#queues.delete(channel)
    for (const range of channel.ranges ?? EVERYTHING) this.#index.remove(range, channel)
  }

  /** The committed transactions above `since`; undefined when some of them are only in the log. */
  recent(since: Timestamp): Generator<CommittedTxn> | undefined {
    return since >= this.#ring.floor ? this.#ring.after(since) : undefined
  }

  // ---- Failures

  /** While the store is not available, the next tick tries again. Any other error is a defect. */
  #run(work: Promise<unknown>): void {
    work.catch((error) => {
      if (isKvError(error, 'storage_unavailable') || isKvError(error, 'key_locked')) return
      this.#sources.onError(error)
      for (const user of [...this.#users]) user.fail(error)
    })
  }
}

interface Group {
  readonly commitTs: Timestamp
  changes: Change[]
  bytes: number
  /** Set when the group is too large to be kept: the channels that it concerns. */
  large: Set<Channel> | undefined
}

const EVERYTHING = [{}] as const

function lacksValue(change: Change): boolean {
  return change.type === 'put' && change.value === undefined
}

function* txnsOf(changes: readonly Change[]): Generator<Change[]> {
  let from = 0
  for (let to = 1; to <= changes.length; to++) {
    const next = changes[to]
    if (next !== undefined && isSameTxn(changes[from] as Change, next)) continue
    yield changes.slice(from, to)
    from = to
  }
}
