import type { Limits } from '../limits.js'

/**
 * What a request is to the server's load.
 * `ending`: it ends what is open (a commit, a rollback, a resolved lock) or keeps it alive: shed last, because what it
 * would free keeps others waiting. `writing`: it goes through the write queue. `reading`: all else. `watching`: it looks at
 * the server itself, and is never shed.
 */
export type Work = 'ending' | 'reading' | 'writing' | 'watching'

/** The counters that decide. */
export interface Load {
  readonly requests: number
  readonly bodyBytes: number
  readonly answerBytes: number
  readonly locks: number
  readonly queuedBatches: number
  readonly queuedBytes: number
  readonly loopDelayMs: number
}

/** What takes time to pass. It lasts until the load is down to three quarters of the bound, so that it does not flap. */
export interface Pressure {
  readonly isQueueLong: boolean
  readonly isLoopLate: boolean
}

export const NO_PRESSURE: Pressure = { isQueueLong: false, isLoopLate: false }

const RELIEF = 0.75
/** What is ending may have this much more of requests and bodies than all else. */
const ENDING_SHARE = 2

export function pressureOf(load: Load, limits: Limits, before: Pressure): Pressure {
  const queue = before.isQueueLong ? RELIEF : 1
  const isQueueLong =
    load.queuedBatches >= limits.writeQueueMax * queue || load.queuedBytes >= limits.writeQueueBytesMax * queue
  const lateMs = limits.loopDelayMsMax * (before.isLoopLate ? RELIEF : 1)
  const isLoopLate = limits.loopDelayMsMax > 0 && load.loopDelayMs > lateMs
  if (isQueueLong === before.isQueueLong && isLoopLate === before.isLoopLate) return before
  return { isQueueLong, isLoopLate }
}

/**
 * Why a request is to be shed; undefined: it is admitted.
 * @param bodyBytes that it announces.
 */
export function overloadOf(
  work: Work,
  bodyBytes: number,
  load: Load,
  { isQueueLong, isLoopLate }: Pressure,
  limits: Limits,
): string | undefined {
  if (work === 'watching') return undefined
  const share = work === 'ending' ? ENDING_SHARE : 1
  if (load.requests >= limits.requestsMax * share) return 'too many requests are in flight'
  const bodies = bodiesOverloadOf(work, bodyBytes, load, limits)
  if (bodies !== undefined) return bodies
  if (work === 'ending') return undefined
  if (load.answerBytes >= limits.answersBytesMax) return 'clients have not taken the answers that were read for them'
  if (isLoopLate) return 'the server is busy'
  if (work === 'reading') return undefined
  if (isQueueLong) return 'too much waits to be written to the disk'
  return load.locks >= limits.locksMax ? 'too many locks stand' : undefined
}

/** The same of a body alone. @param bodyBytes that are announced, or have come. */
export function bodiesOverloadOf(work: Work, bodyBytes: number, load: Load, limits: Limits): string | undefined {
  if (bodyBytes === 0 || load.bodyBytes === 0) return undefined // One alone always fits.
  const max = limits.bodiesBytesMax * (work === 'ending' ? ENDING_SHARE : 1)
  return load.bodyBytes + bodyBytes > max ? 'the bodies of the requests in flight are too long together' : undefined
}
