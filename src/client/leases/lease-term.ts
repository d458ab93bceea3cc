/**
 * How long a lease may be relied on. The server counts the TTL from when it handled the request, which is after the request was
 * sent; a holder who counts from sending it stops earlier.
 */
export interface LeaseTerm {
  readonly renewAtMs: number
  /** The holder must have stopped by then. */
  readonly endsAtMs: number
}

/** Part of the TTL left for clocks that run at different rates, and for the holder's unfinished work. */
const MARGIN = 0.1

export function termOf(sentAtMs: number, ttlMs: number): LeaseTerm {
  return { renewAtMs: sentAtMs + ttlMs / 3, endsAtMs: sentAtMs + ttlMs * (1 - MARGIN) }
}
