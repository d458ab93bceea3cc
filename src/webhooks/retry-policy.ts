import { cutText } from '../bytes/cut-text.js'
import { type Backoff, backoffMs } from '../event-loop/backoff.js'
import { DELIVERY_ERROR_BYTES_MAX, RETRY_AFTER_MS_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'

/** A target that answers so wants no more requests. */
const GONE = 410
/** Answers whose `Retry-After` counts: too many requests, and unavailable. */
const PUT_OFF: ReadonlySet<number | undefined> = new Set([429, 503])

export interface RetryOptions extends Backoff {
  /** Failed attempts until a batch is parked; 0: never. */
  readonly maxAttempts: number
}

/** The batch above the position of a webhook has failed. */
export interface Failure {
  readonly attempts: number
  readonly error: string
  /** The batch ends here. Until it is delivered or skipped, nothing is added to it. */
  readonly upTo: Timestamp
  /** Unix milliseconds of the next attempt; of the parking, for a parked batch. */
  readonly nextMs: number
  readonly isParked: boolean
}

export interface FailedAttempt {
  /** Holds nothing that the target has sent. */
  readonly error: string
  /** The beginning of the answer. */
  readonly text?: string | undefined
  /** Of the answer, if there was one. */
  readonly status?: number | undefined
  /** Its header. */
  readonly retryAfter?: string | undefined
}

export interface AttemptContext {
  readonly options: RetryOptions
  readonly upTo: Timestamp
  readonly nowMs: number
  /** From 0 to 1. */
  readonly random: number
}

export function afterFailedAttempt(
  before: Failure | undefined,
  { error, text, status, retryAfter }: FailedAttempt,
  { options, upTo, nowMs, random }: AttemptContext,
): Failure {
  const attempts = (before?.attempts ?? 0) + 1
  const isParked = status === GONE || (options.maxAttempts > 0 && attempts >= options.maxAttempts)
  const askedMs = PUT_OFF.has(status) ? retryAfterMs(retryAfter, nowMs) : 0
  const waitMs = Math.max(backoffMs(attempts, options, random), askedMs)
  return {
    attempts,
    error: cutText(text ? `${error}: ${text}` : error, DELIVERY_ERROR_BYTES_MAX),
    upTo,
    nextMs: Math.round(isParked ? nowMs : nowMs + waitMs),
    isParked,
  }
}

/** Reads seconds, or a date. @returns 0 for anything else; at most `RETRY_AFTER_MS_MAX`. */
function retryAfterMs(header: string | undefined, nowMs: number): number {
  if (header === undefined) return 0
  const ms = /^\d{1,10}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - nowMs
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(0, ms), RETRY_AFTER_MS_MAX)
}
