/**
 * Milliseconds that one request has spent in each place where it can wait. Concurrent parts of a request each count, so the sum
 * may exceed the time of the request.
 */
export class Stages {
  /** Waits for the latches of its keys. */
  latchMs = 0
  /** Waits for the locks of other transactions. */
  lockMs = 0
  readMs = 0
  /** Waits for its writes: for the group of its batch, and the fsync. */
  writeMs = 0
  /** Each of these times, in the order of their ends, up to `INTERVALS_MAX`. undefined unless the request is traced. */
  readonly intervals: Interval[] | undefined
  intervalsOmitted = 0
  /** Facts about the request's transaction for the trace. */
  txn: TxnFacts | undefined

  constructor(isTraced = false) {
    this.intervals = isTraced ? [] : undefined
  }

  /** @param beganMs by `performance.now()`. */
  since(stage: Stage, beganMs: number): void {
    const endedMs = performance.now()
    this[stage] += endedMs - beganMs
    if (this.intervals === undefined) return
    if (this.intervals.length < INTERVALS_MAX) this.intervals.push({ stage, beganMs, endedMs })
    else this.intervalsOmitted++
  }
}

/** Bounds the trace of a request that finds one lock after the other, or writes thousands of batches. */
const INTERVALS_MAX = 64

export type Stage = 'latchMs' | 'lockMs' | 'readMs' | 'writeMs'

/** By `performance.now()`. */
export interface Interval {
  readonly stage: Stage
  readonly beganMs: number
  readonly endedMs: number
}

export interface TxnFacts {
  readonly startTs: number
  /** Absent when it has not committed, or wrote nothing. */
  readonly commitTs?: number | undefined
  readonly kind?: CommitKind | undefined
}

export type CommitKind = '1pc' | '2pc' | 'async'

/** Counts the time until `work` settles. Without stages: returns `work` itself. */
export function timed<T>(stages: Stages | undefined, stage: Stage, work: Promise<T>): Promise<T> {
  if (stages === undefined) return work
  const beganMs = performance.now()
  return work.finally(() => stages.since(stage, beganMs))
}
