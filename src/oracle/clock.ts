import { CLOCK_MS_MAX, DOWNTIME_MS_MAX } from '../limits.js'
import { OracleMeters } from '../meters/oracle-meters.js'

/** Jump of the clock forward by `ms`, from `atMs`, while hardly any time passed. */
export interface Jump {
  readonly atMs: number
  readonly ms: number
}

export interface ClockOptions {
  readonly now?: (() => number) | undefined
  readonly monotonicNow?: (() => number) | undefined
  /** The clock at the end of this database's last run, or a little later; 0 in a new database. */
  readonly savedMs?: number
  /** By how much `savedMs` may be later than usual: see `OracleOptions.save`. */
  readonly savedExtraMs?: number
  readonly savedJumps?: readonly Jump[]
  /** Called with one sentence when the wall clock steps, or is far from the clock of the last run. */
  readonly onStep?: ((message: string) => void) | undefined
}

/** Difference between wall clock and monotonic clock that counts as a step; less is drift. */
const STEP_MS_MIN = 1000
/** Pace of this clock while the wall clock is behind it. */
const SLOW = 7 / 8
/**
 * After a crash, the saved clock is at most this far ahead of the last reading, if saves were quick: see the oracle's mark.
 */
const SAVED_AHEAD_MS_MAX = 6000
/** A start whose clock is this far behind the last run warns. */
const BEHIND_MS_WARNED = 60 * 60 * 1000
/** Beyond this many jumps the oldest two are merged. */
const JUMPS_MAX = 64

/**
 * Unix milliseconds for timestamps, and ages that go by time alone.
 *
 * The clock follows the wall clock, but never steps back and never stands still: while the wall clock is behind, it goes
 * on by the monotonic clock, a little slower than time. A wall clock that steps forward takes this clock along; the jump is
 * remembered, and ages leave it out. So does a start whose saved clock is ahead of the wall clock, or days behind it.
 */
export class Clock {
  /** Shared with the oracle on this clock. */
  readonly meters = new OracleMeters()
  readonly #now: () => number
  readonly #monotonicNow: () => number
  readonly #onStep: (message: string) => void
  // Readings at the last `#read`.
  #wallMs: number
  #monotonicMs: number
  #ms: number
  #reading: number
  #jumps: readonly Jump[]
  #jumpedMs: number
  #isBehind = false

  constructor(options: ClockOptions) {
    const { now = Date.now, monotonicNow, savedMs = 0, savedExtraMs = 0, savedJumps = [], onStep = () => {} } = options
    this.#now = now
    this.#monotonicNow = monotonicNow ?? (now === Date.now ? () => performance.now() : now)
    this.#onStep = onStep
    this.#wallMs = now()
    this.#monotonicMs = this.#monotonicNow()
    this.#jumps = savedJumps
    this.#jumpedMs = savedJumps.reduce((sum, { ms }) => sum + ms, 0)
    this.#ms = this.#reading = Math.max(1, this.#wallMs, savedMs)
    if (savedMs > 0) this.#goOnFrom(savedMs, SAVED_AHEAD_MS_MAX + savedExtraMs)
  }

  #goOnFrom(savedMs: number, savedAheadMsMax: number): void {
    const aheadMs = savedMs - this.#wallMs
    const jumpMs = aheadMs > 0 ? Math.min(aheadMs, savedAheadMsMax) : -aheadMs - DOWNTIME_MS_MAX
    if (jumpMs > 0) this.#addJump({ atMs: aheadMs > 0 ? savedMs - jumpMs : savedMs, ms: jumpMs })
    this.#isBehind = aheadMs >= STEP_MS_MIN
    if (aheadMs >= BEHIND_MS_WARNED)
      this.#onStep(
        `the clock is ${inWords(aheadMs)} behind the timestamps of the last run: new ones go on from there; if it was the last run that had a wrong clock and nothing was written in it, perkv repair --reset-mark puts them right`,
      )
    else if (-aheadMs > DOWNTIME_MS_MAX)
      this.#onStep(
        `the clock is ${inWords(-aheadMs)} ahead of the last run: if that is not how long the server was down, stop it and set the clock`,
      )
  }

  /** Unix milliseconds, never less than before. */
  now(): number {
    const wallMs = this.#now()
    return wallMs === this.#wallMs ? this.#reading : this.#read(wallMs)
  }

  #read(wallMs: number): number {
    const monotonicMs = this.#monotonicNow()
    const elapsedMs = Math.max(0, monotonicMs - this.#monotonicMs)
    const expectedMs = this.#ms + elapsedMs
    this.#wallMs = wallMs
    this.#monotonicMs = monotonicMs
    if (wallMs > CLOCK_MS_MAX)
      this.#ms = expectedMs // No timestamp can express the wall clock.
    else {
      if (wallMs - expectedMs >= STEP_MS_MIN) this.#follow(Math.floor(expectedMs), wallMs)
      this.#ms = Math.max(wallMs, this.#ms + SLOW * elapsedMs)
    }
    const isBehind = this.#ms - wallMs >= STEP_MS_MIN
    if (isBehind && !this.#isBehind) {
      this.meters.clockSteps.back++
      this.#onStep(
        `the clock stepped back by ${inWords(this.#ms - wallMs)}: timestamps go on, a little slower than time`,
      )
    }
    this.#isBehind = isBehind
    this.#reading = Math.floor(this.#ms)
    return this.#reading
  }

  #follow(fromMs: number, toMs: number): void {
    this.#addJump({ atMs: fromMs, ms: toMs - fromMs })
    this.meters.clockSteps.forward++
    this.#onStep(`the clock jumped forward by ${inWords(toMs - fromMs)}: timestamps follow, ages leave it out`)
  }

  /** Moves the clock forward to `ms` at least, whatever the wall clock says. */
  advanceTo(ms: number): void {
    const nowMs = this.now()
    if (ms <= nowMs) return
    this.#addJump({ atMs: nowMs, ms: ms - nowMs })
    this.#ms = this.#reading = ms
    this.#isBehind = true // The caller asked for it, so it is no step back.
  }

  /** Milliseconds by which this clock is ahead of the wall clock. */
  get aheadMs(): number {
    return Math.max(0, this.#reading - this.#wallMs)
  }

  // ---- Ages

  /** Monotonic milliseconds from some moment on, for what lives in memory. */
  elapsedMs(): number {
    return this.#monotonicNow()
  }

  /** Unix milliseconds without the jumps: grows only with passing time, over restarts too. For storing when something ends. */
  steadyMs(): number {
    return this.now() - this.#jumpedMs
  }

  /** Clock reading from which `ms` of time have passed. */
  ago(ms: number): number {
    let at = this.now() - ms
    for (let i = this.#jumps.length - 1; i >= 0; i--) {
      const jump = this.#jumps[i] as Jump
      if (at >= jump.atMs + jump.ms) break
      at -= jump.ms
    }
    return at
  }

  /** Milliseconds by which the clock has jumped forward since it showed `ms`. */
  jumpedSince(ms: number): number {
    let jumpedMs = 0
    for (let i = this.#jumps.length - 1; i >= 0; i--) {
      const jump = this.#jumps[i] as Jump
      if (ms >= jump.atMs + jump.ms) break
      jumpedMs += Math.min(jump.ms, jump.atMs + jump.ms - ms)
    }
    return jumpedMs
  }

  /** Saved with the mark for the next run. */
  get jumps(): readonly Jump[] {
    return this.#jumps
  }

  #addJump(jump: Jump): void {
    this.#jumpedMs += jump.ms
    const [first, second, ...others] = [...this.#jumps, jump]
    if (first === undefined || second === undefined || others.length < JUMPS_MAX - 1)
      this.#jumps = [...this.#jumps, jump]
    // A timestamp between the two jumps then counts as before both: it seems younger than it is, and never older.
    else this.#jumps = [{ atMs: second.atMs - first.ms, ms: first.ms + second.ms }, ...others]
  }
}

function inWords(ms: number): string {
  const seconds = Math.round(ms / 1000)
  if (seconds < 120) return `${seconds} s`
  if (seconds < 7200) return `${Math.round(seconds / 60)} minutes`
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} hours` : `${Math.round(seconds / 86_400)} days`
}
