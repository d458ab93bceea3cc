import { physicalMs, type Timestamp } from '../../client/index.js'

/** The time of the clock in a timestamp. */
export function timeOf(ts: Timestamp): string {
  return new Date(physicalMs(ts)).toISOString()
}
