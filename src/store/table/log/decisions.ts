import { isReserved } from '../../../bytes/reserved-keys.js'
import { isKvError } from '../../../errors/kv-error.js'
import type { Awaitable } from '../../../event-loop/after.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { Timestamp } from '../../../timestamp.js'
import type { BoundedRange } from '../../calls/end-transactions.js'
import type { ExpiryRow, ExpiryRows } from './expiry-rows.js'
import type { FeedRow } from './feed-row.js'
import type { LogReaderOptions } from './log-reader.js'
import type { Decision } from './log-record.js'
import type { ServerLog, Settle } from './server-log.js'

const RETRY_MS = 1000

type PrimaryCommit = Omit<Decision, 'number'>

interface Written {
  readonly isWhole: boolean
}

export interface DecisionsOptions {
  readonly feed: Pick<FeedRow, 'since' | 'before'>
  readonly log: Pick<ServerLog, 'decide' | 'hold' | 'prepare' | 'close'>
  readonly expiries: Pick<ExpiryRows, 'put'>
  /**
   * A delete_range removes the record of the primary only after it has made records of the other keys' locks.
   * @param keys of the transaction, with the primary first.
   * @returns the commit_ts on record at one of them; 0: there is none at the moment.
   */
  readonly look: (keys: readonly Uint8Array[], startTs: Timestamp) => Promise<Timestamp>
  readonly end: LogReaderOptions['end']
}

/** Logs the commits of primaries that this server makes, and its delete_ranges, once there is a reader of changes. */
export class Decisions {
  readonly #options: DecisionsOptions
  #isClosed = false

  constructor(options: DecisionsOptions) {
    this.#options = options
  }

  // ---- Prewrites

  /**
   * Await before a prewrite is answered: readers of changes find by rows what expires. A server that does not know of a reader,
   * and writes no rows, prewrites for a start_ts that `mayLackExpiries`.
   * @param expiring may have expired when it is committed. @param last the newest timestamp that was handed out.
   * @returns undefined when there is nothing to wait for.
   */
  prewritten(expiring: readonly ExpiryRow[], startTs: Timestamp, last: Timestamp): undefined | Promise<unknown> {
    const { feed, log } = this.#options
    // So that the commit_ts, which is taken later, is above what a new log closes.
    if (expiring.length === 0) return feed.since === undefined ? undefined : log.prepare()
    return this.#withExpiries(expiring, startTs, last)
  }

  async #withExpiries(expiring: readonly ExpiryRow[], startTs: Timestamp, last: Timestamp): Promise<void> {
    const { feed, log } = this.#options
    await feed.before(startTs, last)
    if (feed.since !== undefined) await Promise.all([log.prepare(), this.putExpiries(expiring)])
  }

  /** True when the transaction may have been prewritten by a server that did not know of a reader yet. */
  mayLackExpiries(startTs: Timestamp): boolean {
    const { since = 0 } = this.#options.feed
    return since === 0 || startTs <= since
  }

  /** Await before the primary is committed. */
  putExpiries(expiring: readonly ExpiryRow[]): Promise<void> {
    return this.#options.expiries.put(expiring)
  }

  // ---- Commits

  /** Await before `isLogged`. @returns undefined when it is known whether there is a reader. */
  before(commitTs: Timestamp, last: Timestamp): undefined | Promise<void> {
    return this.#options.feed.before(commitTs, last)
  }

  /** False when nobody reads changes, as far as this server knows: see `before`. */
  get hasReaders(): boolean {
    return this.#options.feed.since !== undefined
  }

  isLogged(commitTs: Timestamp): boolean {
    const { since } = this.#options.feed
    return since !== undefined && commitTs > since
  }

  /**
   * Await before the keys of a transaction are looked for.
   * @returns a function to call once the transaction is committed, or is not.
   * @throws KvError `commit_ts_expired`, `storage_unavailable`
   */
  hold(commit: Omit<PrimaryCommit, 'keys'>): Promise<() => void> {
    return this.#options.log.hold(commit)
  }

  /**
   * Logs the commit, writes the primary, and logs the outcome.
   * @param write changes the primary's row, on the condition that it is as it was read.
   * @throws KvError `commit_ts_expired`, `payload_too_large`, `storage_unavailable`
   */
  async around<T extends Written>({ keys, ...commit }: PrimaryCommit, write: () => Promise<T>): Promise<T> {
    const { log, look } = this.#options
    const { primary, startTs, commitTs } = commit
    const logged = { ...commit, keys: keys.filter((key) => !isReserved(key)) }
    const settle = await log.decide(logged)
    try {
      const written = await write()
      // A refused change cannot land any more, but it may be refused because a copy of it has landed.
      settle(written.isWhole || (await look([primary, ...keys], startTs)) === commitTs)
      return written
    } catch (error) {
      void this.#end(logged, settle)
      throw error
    }
  }

  /** A copy of the write may still be under way, so the transaction is ended. */
  async #end(decision: PrimaryCommit, settle: Settle): Promise<void> {
    while (!this.#isClosed)
      try {
        return settle((await this.#options.end(decision)) === decision.commitTs)
      } catch {
        await sleep(RETRY_MS)
      }
  }

  // ---- delete_range

  /**
   * Removes a range at a timestamp of `next`, and logs that. A removal that has begun is finished, by this server or by whoever
   * ends its log: what it has removed cannot be brought back.
   */
  async remove({ start, end }: BoundedRange, next: () => Awaitable<Timestamp>): Promise<void> {
    const options = this.#options
    for (;;) {
      const ts = await next()
      const removal: PrimaryCommit = { startTs: ts, commitTs: ts, primary: start, keys: [start, end] }
      await this.before(ts, ts)
      if (!this.isLogged(ts)) {
        await options.end(removal)
        return
      }
      const settle = await this.#decided(removal)
      if (settle === undefined) continue
      try {
        await options.end(removal)
      } catch (error) {
        void this.#end(removal, settle)
        throw error
      }
      settle(true)
      return
    }
  }

  /** @returns undefined when readers may have passed its timestamp. */
  async #decided(removal: PrimaryCommit): Promise<Settle | undefined> {
    try {
      return await this.#options.log.decide(removal)
    } catch (error) {
      if (isKvError(error, 'commit_ts_expired')) return undefined
      throw error
    }
  }

  close(): Promise<void> {
    this.#isClosed = true
    return this.#options.log.close()
  }
}
