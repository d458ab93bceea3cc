import type { KeyRange } from '../bytes/key-range.js'
import type { Ranked } from '../bytes/min-heap.js'
import type { Change } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'
import { CommittedTxn } from './committed-txn.js'
import { ChangeFilter } from './rules/change-filter.js'

/** Longest queue of a channel, in transactions. */
const QUEUE_MAX = 1024

/** A live stream as its channel sees it. `rank`: when it must be woken. */
export interface Follower extends Ranked {
  /** Position in the queue. Only the channel sets it. */
  cursor: number
  wake(): void
  /**
   * The follower has left the channel: it has delivered everything up to `position`, and reads on from there once it is woken.
   */
  fallBehind(position: Timestamp): void
}

export interface Taken {
  readonly txns: readonly CommittedTxn[]
  /** Everything at or below it was taken. */
  readonly upTo: Timestamp
}

export class Channel {
  readonly ranges: readonly KeyRange[] | undefined
  readonly filter: ChangeFilter
  readonly #followers = new Set<Follower>()
  /** Followers to wake when the next transaction comes. */
  #waiting = new Set<Follower>()
  #queue: CommittedTxn[] = []
  /** Cursor of the first transaction in the queue. */
  #base = 0
  /** Number of followers that have not taken everything. */
  #lagging = 0
  /** Ring number of the first transaction in the queue. */
  #firstNumber = 0
  /** The transaction that is being matched. */
  #matching: unknown
  #matched: Change[] = []

  constructor(
    readonly name: string,
    ranges: readonly KeyRange[] | undefined,
  ) {
    this.ranges = ranges
    this.filter = new ChangeFilter(ranges)
  }

  get size(): number {
    return this.#followers.size
  }
  get isEmpty(): boolean {
    return this.#queue.length === 0
  }
  get firstNumber(): number {
    return this.#firstNumber
  }
  get #end(): number {
    return this.#base + this.#queue.length
  }

  join(follower: Follower): void {
    follower.cursor = this.#end
    this.#followers.add(follower)
  }

  /** Call when the follower has taken everything and wants to be woken. */
  wait(follower: Follower): void {
    this.#waiting.add(follower)
  }

  takeWaiting(): Iterable<Follower> {
    const waiting = this.#waiting
    if (waiting.size > 0) this.#waiting = new Set()
    return waiting
  }

  leave(follower: Follower): void {
    this.#waiting.delete(follower)
    if (this.#followers.delete(follower) && follower.cursor < this.#end) this.#tookAll()
  }

  // ---- Matching

  /** Adds a change to the matches of its transaction, if the filter has it. @returns true for the first match. */
  match(txn: unknown, change: Change): boolean {
    const isFirst = this.#matching !== txn
    if (isFirst) {
      this.#matching = txn
      this.#matched = []
    }
    if (change.type === 'delete_range') this.#matched.push(...this.filter.clip(change))
    else if (this.#matched.at(-1) !== change) this.#matched.push(change)
    return isFirst
  }

  /** @param whole the transaction of the last matches. @returns its changes in the filter. */
  takeMatched(whole: CommittedTxn): CommittedTxn {
    const matched = this.#matched
    this.#matching = undefined
    this.#matched = []
    if (matched.length !== whole.changes.length) return new CommittedTxn(matched)
    return matched.every((change, i) => change === whole.changes[i]) ? whole : new CommittedTxn(matched)
  }

  // ---- The queue

  /** @param number of the transaction in the ring. */
  push(txn: CommittedTxn, number: number): void {
    if (this.#queue.length === 0) this.#firstNumber = number
    this.#queue.push(txn)
    this.#lagging = this.#followers.size
  }

  get isFull(): boolean {
    return this.#queue.length > QUEUE_MAX
  }

  /**
   * Takes about `bytesMax`; transactions of one commit_ts stay together. @returns undefined when the queue has nothing for the
   * follower.
   */
  take(follower: Follower, bytesMax: number, resolved: Timestamp): Taken | undefined {
    let at = follower.cursor - this.#base
    if (at === this.#queue.length) return undefined
    const txns: CommittedTxn[] = []
    let bytes = 0
    for (; at < this.#queue.length; at++) {
      const txn = this.#queue[at] as CommittedTxn
      if (bytes >= bytesMax && txn.commitTs !== txns.at(-1)?.commitTs) break
      bytes += txn.bytes
      txns.push(txn)
    }
    const next = this.#queue[at]
    follower.cursor = this.#base + at
    if (next === undefined) this.#tookAll()
    return { txns, upTo: next === undefined ? resolved : next.commitTs - 1 }
  }

  /** @param resolved the position of followers that have taken everything. */
  positionOf({ cursor }: Follower, resolved: Timestamp): Timestamp {
    const next = this.#queue[cursor - this.#base]
    return next === undefined ? resolved : next.commitTs - 1
  }

  /** Drops the queue. Followers that still need it fall behind. @returns them, to be woken. */
  drop(): Follower[] {
    return this.#dismiss(
      [...this.#followers].filter(({ cursor }) => cursor < this.#end),
      0,
    )
  }

  /**
   * Makes all followers fall behind. @param resolved the position of those that have taken everything. @returns them, to be
   * woken.
   */
  dismissAll(resolved: Timestamp): Follower[] {
    return this.#dismiss([...this.#followers], resolved)
  }

  #dismiss(followers: Follower[], resolved: Timestamp): Follower[] {
    for (const follower of followers) {
      const position = this.positionOf(follower, resolved)
      this.#followers.delete(follower)
      this.#waiting.delete(follower)
      follower.fallBehind(position)
    }
    this.#clear()
    return followers
  }

  #tookAll(): void {
    if (--this.#lagging === 0) this.#clear()
  }

  #clear(): void {
    this.#base = this.#end
    this.#queue = []
    this.#lagging = 0
  }
}
