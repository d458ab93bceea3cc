import type { Timestamp } from '../timestamp.js'

/** What the versions that it reads are kept for. */
export interface Holder {
  readonly by: 'pin' | 'transaction' | 'lock'
  /** It reads at this timestamp, which the safe point may reach and not pass. */
  readonly ts: Timestamp
}

export interface SafePoint {
  readonly safePoint: Timestamp
  /** Who kept it below what was wanted. */
  readonly heldBackBy?: Holder['by']
}

/** As high as is wanted, and no holder loses what it reads. */
export function safePointOf(wanted: Timestamp, holders: Iterable<Holder>): SafePoint {
  let lowest: Holder | undefined
  for (const holder of holders) if (holder.ts < (lowest?.ts ?? wanted)) lowest = holder
  return lowest === undefined ? { safePoint: wanted } : { safePoint: lowest.ts, heldBackBy: lowest.by }
}
