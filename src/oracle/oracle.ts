import { KvError } from '../errors/kv-error.js'
import { backgroundTimer } from '../event-loop/background-timer.js'
import { MARK_AHEAD_MS, TSO_AHEAD_MS_MAX, TSO_BULK_AHEAD_MS_MAX, TSO_WAIT_MS_MAX } from '../limits.js'
import { LOGICAL_PER_MS, physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import type { Clock } from './clock.js'
import type { OracleState } from './oracle-state.js'
import type { TimestampSource } from './timestamp-source.js'
import type { Timer } from './waiting-requests.js'

/**
 * Least lead of the mark over the timestamps, when those run ahead of the clock: after a burst, or a restart after a crash.
 */
const SAVE_AHEAD_MIN_MS = 250
/**
 * The mark is counted from the wall clock, so that repeated crashes do not carry the clock away from it. Once the clock is
 * this far ahead, the mark is counted from the clock itself, because a short mark would have to be saved all the time.
 */
const FAR_FROM_WALL_MS = 60_000
/** Timestamps are late when a request has waited this long for a save of the mark. Probes and the log say so. */
const LATE_MS = 2000

export interface OracleOptions {
  /** 0 in a new database. */
  readonly savedMark: Timestamp
  /**
   * Resolves once the mark is on disk.
   * @param extraMs by how much the mark is further ahead than usual, because saves are slow.
   */
  readonly save: (mark: Timestamp, extraMs: number) => Promise<void>
  readonly clock: Clock
  readonly timer?: Timer | undefined
  readonly onChange?: ((message: string) => void) | undefined
}

/**
 * Hands out strictly increasing timestamps from memory, below a saved mark, so that a restart never repeats one. More
 * than 2048 timestamps per millisecond run ahead of the clock instead of failing; those for clients are bounded.
 * @see The paper, section 2.3; TiKV's PD, whose TSO saves its mark 3 s ahead too.
 */
export class Oracle implements TimestampSource {
  #last: Timestamp
  /** Mark on disk: exclusive upper bound of the timestamps handed out. */
  #mark: Timestamp
  /** Half-way to the mark. From this timestamp on the next mark is saved in the background. */
  #refreshAt: Timestamp = 0
  #saving: Promise<void> | undefined
  /** Expected duration of a save: the longer of the last one and half of the expectation before. */
  #saveMs = 0
  #wait: { readonly sinceMs: number; readonly stopTimer: () => void; isLate: boolean } | undefined
  readonly #save: OracleOptions['save']
  readonly #clock: Clock
  readonly #timer: Timer
  readonly #onChange: (message: string) => void

  constructor({ savedMark, save, clock, timer = backgroundTimer, onChange = () => {} }: OracleOptions) {
    this.#last = savedMark
    this.#mark = savedMark
    this.#save = save
    this.#clock = clock
    this.#timer = timer
    this.#onChange = onChange
  }

  get last(): Timestamp {
    return this.#last
  }

  get state(): OracleState {
    const nowMs = this.#clock.now()
    return {
      meters: this.#clock.meters,
      role: { role: 'leader', leader: undefined, epoch: 0 },
      aheadMs: Math.max(0, physicalMs(this.#last) - nowMs),
      clockAheadMs: this.#clock.aheadMs,
      clockOffsetMs: -this.#clock.aheadMs,
      late: this.#wait?.isLate ? `no timestamps: saving their mark takes the disk ${this.#waitedFor}` : undefined,
    }
  }

  clock(): Timestamp {
    return Math.max(this.#last, this.now())
  }

  now(): Timestamp {
    return timestampFromMs(this.#clock.now()) + LOGICAL_PER_MS - 1
  }

  ago(ms: number): Timestamp {
    return timestampFromMs(this.#clock.ago(ms))
  }

  /** A promise only when the mark has to be saved first. It rejects with the error of `save`. */
  next(count = 1): Timestamp | Promise<Timestamp> {
    const last = this.#lastOf(count)
    if (last >= this.#mark) return this.#waitForMark(last).then(() => this.next(count))
    this.#last = last
    this.#clock.meters.timestamps += count
    if (last >= this.#refreshAt) this.#raiseMark(last).catch(() => {})
    return last
  }

  #lastOf(count: number): Timestamp {
    return Math.max(this.#last, timestampFromMs(this.#clock.now()) - 1) + count
  }

  /**
   * Like `next`, for clients, who may ask for any number: waits until the last timestamp is no more than `TSO_AHEAD_MS_MAX`
   * ahead of the clock. Requests for several timestamps have a lower bound, which leaves room for requests for one.
   * @throws KvError `overloaded` after `TSO_WAIT_MS_MAX`.
   */
  async nextForClient(count: number): Promise<Timestamp> {
    const aheadMsMax = count === 1 ? TSO_AHEAD_MS_MAX : TSO_BULK_AHEAD_MS_MAX
    const { aheadWaits } = this.#clock.meters
    for (let leftMs = TSO_WAIT_MS_MAX; ; ) {
      const last = this.#lastOf(count)
      const tooEarlyMs = physicalMs(last) - aheadMsMax - this.#clock.now()
      if (tooEarlyMs <= 0 && last < this.#mark) return this.next(count)
      if (tooEarlyMs <= 0) {
        const beganMs = this.#clock.elapsedMs()
        if (!(await this.#isSavedWithin(leftMs, last)))
          throw new KvError('overloaded', 'timestamps wait until the disk has saved their mark', {})
        leftMs -= this.#clock.elapsedMs() - beganMs // Other calls may have taken timestamps in the meantime.
        continue
      }
      if (leftMs <= 0)
        throw new KvError('overloaded', `timestamps are ${aheadMsMax} ms ahead of the clock: ask for fewer`, {})
      const waitMs = Math.min(tooEarlyMs, leftMs)
      await new Promise((resolve) => setTimeout(resolve, waitMs))
      leftMs -= waitMs
      aheadWaits.observe(waitMs / 1000)
    }
  }

  #isSavedWithin(ms: number, ts: Timestamp): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const stopTimer = this.#timer(Math.max(0, ms), () => resolve(false))
      this.#waitForMark(ts)
        .then(() => resolve(true), reject)
        .finally(stopTimer)
    })
  }

  /** @returns a promise only when the mark has to be saved first. */
  observe(ts: Timestamp): undefined | Promise<void> {
    if (ts <= this.#last) return undefined
    const seen = ts === this.#last + 1 ? ts : Math.min(ts, this.clock())
    if (seen >= this.#mark) return this.#waitForMark(seen).then(() => this.observe(seen))
    this.#last = Math.max(this.#last, seen)
    return undefined
  }

  /** Makes all further timestamps larger than `ts`, even one in the future: the clock moves there. */
  async passBy(ts: Timestamp): Promise<void> {
    this.#clock.advanceTo(physicalMs(ts))
    while (ts >= this.#mark) await this.#raiseMark(ts)
    this.#last = Math.max(this.#last, ts)
  }

  /**
   * Saves the mark where the timestamps end, so that the next start goes on from there and not from a mark ahead of the clock.
   */
  async close(): Promise<void> {
    await this.#saving?.catch(() => {})
    await this.#save(this.#last + 1, 0)
  }

  async #waitForMark(ts: Timestamp): Promise<void> {
    const beganMs = performance.now()
    const saved = this.#raiseMark(ts)
    this.#wait ??= {
      sinceMs: this.#clock.elapsedMs(),
      stopTimer: this.#timer(LATE_MS, () => this.#becomeLate()),
      isLate: false,
    }
    try {
      await saved
    } catch (error) {
      this.#clock.meters.failures++
      throw error
    } finally {
      this.#clock.meters.markWaits.observe((performance.now() - beganMs) / 1000)
    }
  }

  #becomeLate(): void {
    if (this.#wait === undefined) return
    this.#wait.isLate = true
    this.#onChange(
      `no timestamps: saving their mark takes the disk more than ${LATE_MS / 1000} s; what needs one waits`,
    )
  }

  get #waitedFor(): string {
    return `${Math.round((this.#clock.elapsedMs() - (this.#wait?.sinceMs ?? 0)) / 1000)} s`
  }

  #endWait(isSaved: boolean): void {
    if (this.#wait === undefined) return
    this.#wait.stopTimer()
    if (this.#wait.isLate)
      this.#onChange(
        isSaved
          ? `timestamps are handed out again, after ${this.#waitedFor}`
          : `the mark of the timestamps could not be saved, after ${this.#waitedFor}`,
      )
    this.#wait = undefined
  }

  /** Runs one save at a time. A caller whose timestamp the new mark does not cover calls again. */
  #raiseMark(ts: Timestamp): Promise<void> {
    this.#saving ??= this.#saveMark(ts)
    return this.#saving
  }

  /**
   * Places the mark ahead of the expected end of the save after this one. A save so slow that its mark has passed
   * already is followed by another.
   */
  async #saveMark(ts: Timestamp): Promise<void> {
    let isSaved = false
    try {
      for (let fromTs = ts; !isSaved; fromTs = this.#lastOf(1)) {
        const beganMs = this.#clock.elapsedMs()
        const extraMs = 2 * this.#saveMs
        const mark = this.#markFrom(fromTs) + timestampFromMs(extraMs)
        await this.#save(mark, extraMs)
        this.#saveMs = Math.max(Math.ceil(this.#clock.elapsedMs() - beganMs), this.#saveMs >> 1)
        this.#mark = mark
        this.#refreshAt = fromTs + (mark - fromTs) / 2
        isSaved = this.#lastOf(1) < mark
      }
    } finally {
      this.#saving = undefined
      this.#endWait(isSaved)
    }
  }

  #markFrom(ts: Timestamp): Timestamp {
    const nowMs = this.#clock.now()
    const fromMs = this.#clock.aheadMs > FAR_FROM_WALL_MS ? nowMs : nowMs - this.#clock.aheadMs
    return Math.max(timestampFromMs(fromMs + MARK_AHEAD_MS), ts + timestampFromMs(SAVE_AHEAD_MIN_MS))
  }
}
