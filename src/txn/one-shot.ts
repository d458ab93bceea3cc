import type { LateSignal } from '../event-loop/late-signal.js'
import type { Riders } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'
import type { Check } from './check.js'
import type { Idempotency } from './idempotency.js'
import type { Op, OpResult } from './op.js'

/** A transaction that arrives complete in one request. */
export interface OneShot {
  readonly checks: readonly Check[]
  readonly ops: readonly Op[]
  /** Further tries after a write conflict. */
  readonly maxRetries: number
  /** Longest wait for other transactions' locks before `key_locked`. */
  readonly lockWaitMs: number
  /** `serializable`: the commit fails if a key or range that was read has changed. */
  readonly isolation?: 'snapshot' | 'serializable' | undefined
  /** The work was done before the transaction came. With riders it commits even if it writes nothing. */
  readonly riders?: Riders | undefined
  /** Interrupts a wait for locks. Made already, it also ends the transaction between its steps, up to its commit. */
  readonly signal?: LateSignal | undefined
  readonly handover?: Handover | undefined
  /** If given, the outcome is stored with the commit, and a repeat gets the same answer. */
  readonly idempotency?: Idempotency | undefined
  /** Whose answer it is. undefined: the server does not tell its callers apart. */
  readonly caller?: string | undefined
}

/** Learns whether a transaction can still be given up. */
export interface Handover {
  /** The commit begins; from now on only its answer tells the outcome. @throws the reason why the request is given up. */
  begin(): void
  /** The transaction has not committed, and may be tried again. */
  undo(): void
}

export interface OneShotAnswer {
  readonly startTs: Timestamp
  /** Absent when nothing was written, acknowledged or notified. */
  readonly commitTs?: Timestamp
  readonly results: readonly OpResult[]
}

export type OneShotDone = (error: unknown, answer: OneShotAnswer | undefined) => void
