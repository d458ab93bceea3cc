import { KvError } from '../../../errors/kv-error.js'
import { backgroundTimer } from '../../../event-loop/background-timer.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import { Revisions } from '../layout/revisions.js'
import type { Table } from '../layout/table.js'
import { type Decision, keyBytes } from './log-record.js'
import { OpenLog, OVER } from './open-log.js'

const BEAT_MS = 250
/** Beats by which a server closes later at most, once commits came too late. */
const LATE_BEATS_MAX = 40
/** After so many beats without a commit that came too late, the server closes sooner again. */
const CALM_BEATS = 240
/** A transaction has its keys in one cell of the table, and a second time with its outcome. */
const KEY_BYTES_MAX = 32 * 1024 * 1024
/** A log without a decision for so many beats ends. The next decision begins another. */
const IDLE_BEATS = 240

/** Call once it is certain. False: no change under way can bring the primary's write record with this commit_ts any more. */
export type Settle = (isCommitted: boolean) => void

export interface ServerLogOptions {
  readonly table: Table
  readonly source: Pick<TimestampSource, 'last' | 'next'>
  readonly pause?: ((ms: number) => Promise<void>) | undefined
  readonly elapsedMs?: (() => number) | undefined
  readonly chunkEntriesMax?: number | undefined
  /** Called when the log has closed more than before. */
  readonly onClosed?: (() => void) | undefined
  /** For tests. */
  readonly beatMs?: number | undefined
}

/**
 * The log in which this server writes each commit of a primary before it makes it, and its outcome afterwards. README.md in this
 * folder argues why readers of all logs miss none.
 */
export class ServerLog {
  readonly #source: Pick<TimestampSource, 'last' | 'next'>
  readonly #pause: (ms: number) => Promise<void>
  readonly #begin: () => Promise<OpenLog>
  readonly #beatMs: number
  #log: OpenLog | undefined
  #opening: Promise<OpenLog> | undefined
  #number = 0
  /** The log closes up to the timestamp that was the newest one so many beats ago. */
  #lateBeats = 1
  #calmBeats = 0
  #idleBeats = 0
  #isClosed = false

  constructor({
    table,
    source,
    pause = pauseOf,
    elapsedMs = () => performance.now(),
    chunkEntriesMax,
    onClosed,
    beatMs = BEAT_MS,
  }: ServerLogOptions) {
    this.#beatMs = beatMs
    this.#source = source
    this.#pause = pause
    const options = { table, revisions: new Revisions(), pause, elapsedMs, chunkEntriesMax, onClosed }
    this.#begin = () => OpenLog.begin(source, options)
  }

  /**
   * Await before the primary's lock becomes a write record, or a range is removed. The decision holds back what readers take for
   * closed until it is settled.
   * @throws KvError `commit_ts_expired` when readers may have passed the commit_ts; `payload_too_large`; `storage_unavailable`:
   *   nothing may be committed.
   */
  async decide(commit: Omit<Decision, 'number'>): Promise<Settle> {
    if (keyBytes(commit) > KEY_BYTES_MAX)
      throw new KvError('payload_too_large', `the keys of a transaction are over ${KEY_BYTES_MAX} bytes`, {
        limit: KEY_BYTES_MAX,
      })
    for (;;) {
      const log = await this.#opened()
      this.#requireOpen(log, commit)
      const decision = { ...commit, number: ++this.#number }
      if (await this.#isAppended(log.decide(decision))) return (isCommitted) => log.settle(decision, isCommitted)
    }
  }

  /**
   * Keeps the commit_ts open while a commit at it is prepared. @returns a function that ends that.
   * @throws KvError `commit_ts_expired`, `storage_unavailable`
   */
  async hold(commit: Pick<Decision, 'primary' | 'startTs' | 'commitTs'>): Promise<() => void> {
    const log = await this.#opened()
    this.#requireOpen(log, commit)
    return log.hold(commit.commitTs)
  }

  /** @throws KvError `commit_ts_expired` */
  #requireOpen(log: OpenLog, commit: Pick<Decision, 'primary' | 'startTs' | 'commitTs'>): void {
    if (commit.commitTs > log.closed) return
    const ageMs = physicalMs(this.#source.last) - physicalMs(commit.commitTs)
    if (ageMs <= LATE_BEATS_MAX * this.#beatMs) {
      // Its client is slow, or validates many reads: the next one may be in time.
      this.#calmBeats = 0
      this.#lateBeats = Math.min(LATE_BEATS_MAX, this.#lateBeats * 2)
    }
    throw expired(commit, log.closed + 1)
  }

  /**
   * Begins a log where there is none, so that a commit_ts that is taken afterwards is above what it closes. @returns undefined when
   * there is nothing to wait for. Never rejects.
   */
  prepare(): undefined | Promise<unknown> {
    if (this.#isClosed) return undefined
    const opening = this.#opened()
    return opening instanceof Promise ? opening.catch(() => {}) : undefined
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#opening?.catch(() => {})
    await this.#log?.end()
  }

  /** @returns false when the log is over, and another one is needed. @throws KvError `storage_unavailable` */
  async #isAppended(appending: Promise<void>): Promise<boolean> {
    this.#idleBeats = 0
    try {
      await appending
      return true
    } catch (error) {
      if (error === OVER) return false
      throw error
    }
  }

  #opened(): OpenLog | Promise<OpenLog> {
    if (this.#isClosed) throw new KvError('storage_unavailable', 'this server is stopping', {})
    if (this.#log !== undefined && !this.#log.isOver) return this.#log
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined
    })
    return this.#opening
  }

  async #open(): Promise<OpenLog> {
    const log = await this.#begin()
    this.#log = log
    this.#idleBeats = 0
    this.#beat(log).catch(() => {}) // Nothing in it throws.
    return log
  }

  /**
   * Closes what was the newest timestamp at a beat before, so that clients have had time to commit, until the log is over. A log
   * that stands still is ended by others, so a beat without a timestamp is written too.
   */
  async #beat(log: OpenLog): Promise<void> {
    for (const newest = [log.closed]; ; ) {
      await this.#pause(this.#beatMs)
      if (log.isOver) return
      if (++this.#calmBeats >= CALM_BEATS) this.#soonerAgain()
      try {
        await this.#source.next() // So that an idle server closes what has passed.
        log.closable = newest[Math.min(this.#lateBeats, newest.length) - 1] ?? log.closable
        newest.unshift(this.#source.last)
        newest.length = Math.min(newest.length, LATE_BEATS_MAX)
      } catch {}
      try {
        if (++this.#idleBeats >= IDLE_BEATS && log.isIdle) await log.end()
        else await log.appended()
      } catch {} // It is over.
    }
  }

  #soonerAgain(): void {
    this.#calmBeats = 0
    this.#lateBeats = Math.max(1, this.#lateBeats >> 1)
  }
}

function pauseOf(ms: number): Promise<void> {
  return new Promise((resolve) => void backgroundTimer(ms, resolve))
}

function expired(
  { primary, startTs, commitTs }: Pick<Decision, 'primary' | 'startTs' | 'commitTs'>,
  minCommitTs: Timestamp,
): KvError<'commit_ts_expired'> {
  const detail = `the change feed has passed the commit_ts ${commitTs}: take a new one`
  return new KvError('commit_ts_expired', detail, { key: primary, startTs, attemptedCommitTs: commitTs, minCommitTs })
}
