import type { Limits } from '../../limits.js'

/**
 * What a request is to the server's load.
 * `ending`: it ends what is open (a commit, a rollback, a resolved lock) or keeps it alive: shed last, because what it
 * would free keeps others waiting. `writing`: it goes through the write queue. `reading`: all else. `watching`: it looks at
 * the server itself, and is never shed.
 */
export type Work = 'ending' | 'reading' | 'writing' | 'watching'

/** The counters that decide. */
export interface Load {
  /** Requests whose bodies have arrived. The others are counted as connections. */
  readonly requests: number
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

/** Why a request is to be shed, whatever its body; undefined: it is admitted. */
export function overloadOf(
  work: Work,
  load: Load,
  { isQueueLong, isLoopLate }: Pressure,
  limits: Limits,
): string | undefined {
  if (work === 'watching') return undefined
  const share = work === 'ending' ? ENDING_SHARE : 1
  if (load.requests >= limits.requestsMax * share) return 'too many requests are in flight'
  if (work === 'ending') return undefined
  if (load.answerBytes >= limits.answersBytesMax)
    return 'the answers that are being read, or that clients have not taken yet, leave no room for more'
  if (isLoopLate) return 'the server is busy'
  if (work === 'reading') return undefined
  if (isQueueLong) return 'too much waits to be written to the disk'
  return load.locks >= limits.locksMax ? 'too many locks stand' : undefined
}

/**
 * Why a body is to be refused; undefined: there is room. One alone always fits.
 * @param bytes of the body that have arrived, or will.
 * @param otherBytes of the other bodies, as far as they have arrived.
 */
export function bodyOverloadOf(work: Work, bytes: number, otherBytes: number, limits: Limits): string | undefined {
  const max = limits.bodiesBytesMax * (work === 'ending' ? ENDING_SHARE : 1)
  if (otherBytes === 0 || bytes + otherBytes <= max) return undefined
  return 'the bodies of the requests in flight are too long together'
}
