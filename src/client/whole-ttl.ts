import { TTL_MS_MAX } from '../limits.js'

/** Rounds a time to live that another package has counted up to one that PerKV takes. A time that is over becomes 1 ms. */
export function wholeTtl(ms: number): number {
  return Math.min(Math.max(Math.ceil(ms), 1), TTL_MS_MAX)
}
