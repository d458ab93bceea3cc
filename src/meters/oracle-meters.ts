import { Histogram, SECONDS } from './histogram.js'

/** Counts of an oracle and its clock since the process has started. */
export class OracleMeters {
  /** Timestamps that were handed out. */
  timestamps = 0
  /** Seconds that calls have waited until the mark was on disk. */
  readonly markWaits = new Histogram(SECONDS)
  /** Seconds that clients have waited because timestamps ran ahead of the clock. */
  readonly aheadWaits = new Histogram(SECONDS)
  /** Steps of the wall clock. */
  readonly clockSteps = { forward: 0, back: 0 }
}
