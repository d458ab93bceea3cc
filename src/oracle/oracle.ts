import { LOGICAL_PER_MS, type Timestamp, timestampFromMs } from '../percolator/timestamp.js'

/** The mark is saved this far ahead of the clock, so that a restart never hands out a timestamp again. */
const SAVE_AHEAD_MS = 3000
/** And this far ahead of the timestamps, where those run ahead of the clock: after a burst, or a restart after a crash. */
const SAVE_AHEAD_MIN_MS = 250

export interface OracleOptions {
  /** The high-water mark on disk; 0 in a new database. */
  readonly savedMark: Timestamp
  /** Fulfilled once the mark is on disk. */
  readonly save: (mark: Timestamp) => Promise<void>
  /** Unix milliseconds; may step back. Default `Date.now`. */
  readonly now?: () => number
}

/**
 * Hands out strictly increasing timestamps: from memory below a saved mark, never again after a restart, and never
 * backwards when the clock steps back. More than 2048 a millisecond run ahead of the clock instead of failing.
 * @see The paper, section 2.3; TiKV's PD, whose TSO saves its mark 3 s ahead too.
 */
export class Oracle {
  /** The newest timestamp that was handed out or seen. */
  #last: Timestamp
  /** On disk: every timestamp handed out is below it. */
  #mark: Timestamp
  /** Half-way to the mark: from here on the next one is saved in the background. */
  #refreshAt: Timestamp = 0
  #saving: Promise<void> | undefined
  readonly #save: (mark: Timestamp) => Promise<void>
  readonly #now: () => number

  constructor({ savedMark, save, now = Date.now }: OracleOptions) {
    this.#last = savedMark
    this.#mark = savedMark
    this.#save = save
    this.#now = now
  }

  /** Every timestamp handed out so far, and every one observed, is at or below this. */
  get last(): Timestamp {
    return this.#last
  }

  /** The newest timestamp that the clock allows now; later ones are in the future. */
  clock(): Timestamp {
    return Math.max(this.#last, timestampFromMs(this.#now()) + LOGICAL_PER_MS - 1)
  }

  /**
   * The last of `count` consecutive timestamps, none handed out before. A promise only when the mark has to be saved
   * first. Rejects with what `save` rejects with, and hands out nothing then.
   */
  next(count = 1): Timestamp | Promise<Timestamp> {
    const last = Math.max(this.#last, timestampFromMs(this.#now()) - 1) + count
    if (last >= this.#mark) return this.#raiseMark(last).then(() => this.next(count))
    this.#last = last
    if (last >= this.#refreshAt) this.#raiseMark(last).catch(() => {})
    return last
  }

  /**
   * From now on every timestamp handed out is above `ts`, but that a `ts` in the future counts as the clock's now. The
   * next one that would be handed out is not in the future, also where timestamps run ahead of the clock.
   * @returns undefined when that holds at once; a promise when the mark has to be saved first.
   */
  observe(ts: Timestamp): undefined | Promise<void> {
    if (ts <= this.#last) return undefined
    const seen = ts === this.#last + 1 ? ts : Math.min(ts, this.clock())
    if (seen >= this.#mark) return this.#raiseMark(seen).then(() => this.observe(seen))
    this.#last = Math.max(this.#last, seen)
    return undefined
  }

  /** From now on every timestamp handed out is above `ts`, also where that is in the future: until then it runs ahead. */
  async passBy(ts: Timestamp): Promise<void> {
    while (ts >= this.#mark) await this.#raiseMark(ts)
    this.#last = Math.max(this.#last, ts)
  }

  /** Before a clean stop: the next start goes on from here, rather than from a mark ahead of the clock. */
  async close(): Promise<void> {
    await this.#saving?.catch(() => {})
    await this.#save(this.#last + 1)
  }

  /** One save at a time; a caller whose timestamp it doesn't cover asks again. */
  #raiseMark(ts: Timestamp): Promise<void> {
    this.#saving ??= this.#saveMark(ts)
    return this.#saving
  }

  async #saveMark(ts: Timestamp): Promise<void> {
    const mark = Math.max(timestampFromMs(this.#now() + SAVE_AHEAD_MS), ts + timestampFromMs(SAVE_AHEAD_MIN_MS))
    try {
      await this.#save(mark)
      this.#mark = mark
      this.#refreshAt = ts + (mark - ts) / 2
    } finally {
      this.#saving = undefined
    }
  }
}
