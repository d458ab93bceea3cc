import type { Timestamp } from '../timestamp.js'

export interface Holder {
  readonly by: 'pin' | 'transaction' | 'lock' | 'feed' | 'consumer'
  /** The holder reads at this timestamp. The safe point may reach it, but not go above it. */
  readonly ts: Timestamp
}

export interface SafePoint {
  readonly safePoint: Timestamp
  readonly heldBackBy?: Holder['by']
}

/** The highest timestamp up to `wanted` that is not above any holder. */
export function safePointOf(wanted: Timestamp, holders: Iterable<Holder>): SafePoint {
  let lowest: Holder | undefined
  for (const holder of holders) if (holder.ts < (lowest?.ts ?? wanted)) lowest = holder
  return lowest === undefined ? { safePoint: wanted } : { safePoint: lowest.ts, heldBackBy: lowest.by }
}
