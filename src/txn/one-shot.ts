import type { LazySignal } from '../event-loop/lazy-signal.js'
import type { CommitEffects } from '../percolator/commit-effects.js'
import type { Timestamp } from '../timestamp.js'
import type { Check } from './check.js'
import type { Idempotency } from './idempotency.js'
import type { Op, OpResult } from './op.js'

export interface OneShot {
  readonly checks: readonly Check[]
  readonly ops: readonly Op[]
  readonly maxRetries: number
  readonly lockWaitMs: number
  readonly isolation?: 'snapshot' | 'serializable' | undefined
  /** Report work done before this request. With them the transaction commits even if it writes nothing. */
  readonly commitEffects?: CommitEffects | undefined
  /** Interrupts waits for locks. `requireWanted` checks it between the steps, up to the commit. */
  readonly signal?: LazySignal | undefined
  readonly handover?: Handover | undefined
  /** If given, the outcome is stored with the commit, and a repeat gets the same answer. */
  readonly idempotency?: Idempotency | undefined
  readonly caller?: string | undefined
}

export interface Handover {
  /**
   * Called when the commit begins: from then on only its answer tells the outcome. @throws the reason when the request
   * is given up.
   */
  begin(): void
  undo(): void
}

export interface OneShotAnswer {
  readonly startTs: Timestamp
  /** Absent when nothing was written, acknowledged or notified. */
  readonly commitTs?: Timestamp
  readonly results: readonly OpResult[]
}

export type OneShotDone = (error: unknown, answer: OneShotAnswer | undefined) => void
