import { KvError } from '../../../errors/kv-error.js'
import { backgroundTimer } from '../../../event-loop/background-timer.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import { Revisions } from '../layout/revisions.js'
import type { Table } from '../layout/table.js'
import { WakeUps } from '../layout/wake-ups.js'
import { type Decision, keyBytes } from './log-record.js'
import { OpenLog, OVER } from './open-log.js'

const BEAT_MS = 250
/** What a server leaves clients to commit, at least. It closes as often at most where it was told that somebody waits for that. */
const LEAVE_MS = 50
/** Beats that a server leaves at most, once commits came too late. */
const LATE_BEATS_MAX = 40
/** After so many beats without a commit that came too late, the server leaves less again. */
const CALM_BEATS = 240
/** A transaction has its keys in one cell of the table, and a second time with its outcome. */
const KEY_BYTES_MAX = 32 * 1024 * 1024
/** A log without a decision for so many beats ends. The next decision begins another. */
const IDLE_BEATS = 240

/** Topics of wake-ups: a log has closed more, and a server has committed what readers see once all logs have closed it. */
export const CLOSED = 'feed'
const COMMITTED = 'committed'

/** Call once it is certain. False: no change under way can bring the primary's write record with this commit_ts any more. */
export type Settle = (isCommitted: boolean) => void

export interface ServerLogOptions {
  readonly table: Table
  readonly source: Pick<TimestampSource, 'last' | 'next'>
  readonly pause?: ((ms: number) => Promise<void>) | undefined
  readonly elapsedMs?: (() => number) | undefined
  readonly chunkEntriesMax?: number | undefined
  readonly wakeUps?: Pick<WakeUps, 'tell' | 'isWanted' | 'listenAWhile'> | undefined
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
  readonly #wakeUps: NonNullable<ServerLogOptions['wakeUps']>
  readonly #beatMs: number
  #log: OpenLog | undefined
  #opening: Promise<OpenLog> | undefined
  #number = 0
  /** The log closes up to a timestamp that was the newest one so long ago. */
  #leaveMs: number
  #calmBeats = 0
  #idleBeats = 0
  #isClosed = false
  /** Somebody waits until more is closed. */
  #isAwaited = false
  /** Others have not been told yet that this server has committed something. */
  #hasCommitted = false
  #isClosingSoon = false

  constructor({
    table,
    source,
    pause = pauseOf,
    elapsedMs = () => performance.now(),
    chunkEntriesMax,
    wakeUps = new WakeUps(),
    beatMs = BEAT_MS,
  }: ServerLogOptions) {
    this.#beatMs = beatMs
    this.#leaveMs = Math.min(LEAVE_MS, beatMs)
    this.#wakeUps = wakeUps
    this.#source = source
    this.#pause = pause
    const onClosed = (): void => wakeUps.tell(CLOSED)
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
      if (await this.#isAppended(log.decide(decision)))
        return (isCommitted) => {
          log.settle(decision, isCommitted)
          this.#settled()
        }
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
      const more = 2 * Math.max(this.#leaveMs, Math.min(ageMs, this.#beatMs))
      this.#leaveMs = Math.min(more, LATE_BEATS_MAX * this.#beatMs)
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
    let log: OpenLog | undefined
    while (log === undefined)
      log = await this.#begin().catch((error: unknown) => {
        if (error !== OVER) throw error // Others have swept it away while the answer was lost.
        return undefined
      })
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
      this.#wakeUps.listenAWhile(COMMITTED, () => this.#hasten())
      await this.#pause(this.#beatMs)
      if (log.isOver) return
      if (++this.#calmBeats >= CALM_BEATS) this.#soonerAgain()
      try {
        await this.#source.next() // So that an idle server closes what has passed.
        const lateBeats = Math.ceil(this.#leaveMs / this.#beatMs)
        log.closable = Math.max(log.closable, newest[Math.min(lateBeats, newest.length) - 1] ?? 0)
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
    this.#leaveMs = Math.max(Math.min(LEAVE_MS, this.#beatMs), this.#leaveMs / 2)
  }

  // ---- Between beats, where others can be told

  #settled(): void {
    if (!this.#wakeUps.isWanted(CLOSED)) return
    this.#hasCommitted = true
    this.#hasten()
  }

  #hasten(): void {
    this.#isAwaited = true
    if (!this.#isClosingSoon && this.#leaveMs < this.#beatMs) void this.#closeSoon()
  }

  /** Closes what is the newest timestamp by now, as soon as clients have had time to commit, and again if more is awaited then. */
  async #closeSoon(): Promise<void> {
    this.#isClosingSoon = true
    try {
      while (this.#isAwaited && this.#log?.isOver === false) {
        const log = this.#log
        if (this.#hasCommitted) this.#wakeUps.tell(COMMITTED) // This server is told, too.
        this.#hasCommitted = false
        this.#isAwaited = false
        await this.#source.next()
        const newest = this.#source.last
        await this.#pause(this.#leaveMs)
        log.closable = Math.max(log.closable, newest)
        await log.appended()
      }
    } catch {} // The next beat closes it, or the log is over.
    this.#isClosingSoon = false
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
