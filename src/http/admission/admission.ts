import type { Limits } from '../../limits.js'

/**
 * The kind of load that a request is.
 * `ending`: ends a transaction or lock (commit, rollback, resolve) or keeps it alive. Shed last, because other requests wait for
 * it. `writing`: goes through the write queue. `watching`: asks about the server itself, and is never shed. `reading`: all other
 * requests.
 */
export type Work = 'ending' | 'reading' | 'writing' | 'watching'

export interface Load {
  /** Requests whose bodies have arrived. The limits on connections and on streams of HTTP/2 bound the others. */
  readonly requests: number
  readonly answerBytes: number
  readonly locks: number
  readonly queuedBatches: number
  readonly queuedBytes: number
  readonly loopDelayMs: number
}

/** Overload that passes slowly. It ends when the load is down to three quarters of its limit, so that it does not flap. */
export interface Pressure {
  readonly isQueueLong: boolean
  readonly isLoopLate: boolean
}

export const NO_PRESSURE: Pressure = { isQueueLong: false, isLoopLate: false }

const RELIEF = 0.75
/** Factor on the limits of requests and bodies for work that is `ending`. */
export const ENDING_SHARE = 2

export function pressureOf(load: Load, limits: Limits, before: Pressure): Pressure {
  const queue = before.isQueueLong ? RELIEF : 1
  const isQueueLong =
    load.queuedBatches >= limits.writeQueueMax * queue || load.queuedBytes >= limits.writeQueueBytesMax * queue
  const lateMs = limits.loopDelayMsMax * (before.isLoopLate ? RELIEF : 1)
  const isLoopLate = limits.loopDelayMsMax > 0 && load.loopDelayMs > lateMs
  if (isQueueLong === before.isQueueLong && isLoopLate === before.isLoopLate) return before
  return { isQueueLong, isLoopLate }
}

/** @returns the reason to shed a request before its body is looked at; undefined: it is admitted. */
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
  if (load.answerBytes >= limits.answersBytesMax) return 'answers in progress take too much memory'
  if (isLoopLate) return 'the server is busy'
  if (work === 'reading') return undefined
  if (isQueueLong) return 'too many writes wait for the disk'
  return load.locks >= limits.locksMax ? 'the store holds too many locks' : undefined
}

/**
 * @param bytes bytes of this body that have arrived, or that its headers announce.
 * @param otherBytes bytes of all other bodies that have arrived.
 * @returns the reason to refuse the body; undefined: there is room. A single body always fits.
 */
export function bodyOverloadOf(work: Work, bytes: number, otherBytes: number, limits: Limits): string | undefined {
  const max = limits.bodiesBytesMax * (work === 'ending' ? ENDING_SHARE : 1)
  if (otherBytes === 0 || bytes + otherBytes <= max) return undefined
  return 'the bodies of the requests in flight take too much memory'
}
