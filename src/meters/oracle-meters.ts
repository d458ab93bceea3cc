import { Histogram, SECONDS } from './histogram.js'

export class OracleMeters {
  timestamps = 0
  /** Requests for timestamps that ended without one. */
  failures = 0
  /** Seconds that calls have waited until the mark was on disk. */
  readonly markWaits = new Histogram(SECONDS)
  /** Seconds that clients have waited because timestamps ran ahead of the clock. */
  readonly aheadWaits = new Histogram(SECONDS)
  readonly clockSteps = { forward: 0, back: 0 }
}
