/**
 * Milliseconds that one request has spent in each place where it can wait. Parts of a request that run at once count each, so the
 * sum may exceed the time of the request.
 */
export class Stages {
  /** For the latches of its keys. */
  latchMs = 0
  /** For the locks of other transactions. */
  lockMs = 0
  /** Reading from the store. */
  readMs = 0
  /** Until its write was done: for the group of its batch, and the fsync. */
  writeMs = 0

  /** @param beganMs by `performance.now()`. */
  since(stage: Stage, beganMs: number): void {
    this[stage] += performance.now() - beganMs
  }
}

export type Stage = 'latchMs' | 'lockMs' | 'readMs' | 'writeMs'

/** Counts the time until `work` is settled. Without stages: `work` itself. */
export function timed<T>(stages: Stages | undefined, stage: Stage, work: Promise<T>): Promise<T> {
  if (stages === undefined) return work
  const beganMs = performance.now()
  return work.finally(() => stages.since(stage, beganMs))
}
