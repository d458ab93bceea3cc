import { physicalMs, type Timestamp } from '../../client/index.js'

export function timeOf(ts: Timestamp): string {
  return new Date(physicalMs(ts)).toISOString()
}
