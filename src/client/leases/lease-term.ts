/**
 * How long a lease may be relied on. The server counts the TTL from when it handled the request. That was after the request was sent, so
 * a holder who counts from there ends first.
 */
export interface LeaseTerm {
  readonly renewAtMs: number
  /** The holder must have stopped by then. */
  readonly endsAtMs: number
}

/** Left for clocks that run at different rates, and for what the holder still has under way. */
const MARGIN = 0.1

/** @param sentAtMs when the request was sent that was answered, by a clock that nobody sets. */
export function termOf(sentAtMs: number, ttlMs: number): LeaseTerm {
  return { renewAtMs: sentAtMs + ttlMs / 3, endsAtMs: sentAtMs + ttlMs * (1 - MARGIN) }
}
