/** A server that has resigned because nobody reached it holds back for this long. */
const HELD_BACK_MS = 60_000
/** It does so no longer where nobody else takes over within this time. */
const FREE_MS = 10_000

/** What another living server has written into its row. */
export interface OtherServer {
  /** Epoch of the leader that it cannot reach; 0: none. */
  readonly unreachedEpoch: number
}

/**
 * Whether a leader is of no use to the others: a majority of the living ones cannot reach it, so it had better resign. A server
 * that has just died counts until it is forgotten, which may delay this.
 */
export function isUnreachable(epoch: number, others: readonly OtherServer[]): boolean {
  return others.filter(({ unreachedEpoch }) => unreachedEpoch === epoch).length * 2 > others.length
}

export interface Resigned {
  /** Since this server has resigned. */
  readonly agoMs: number
  /** For how long the row has not changed. */
  readonly silentMs: number
  readonly others: readonly OtherServer[]
}

/** Whether a server that nobody reached leaves the lead to the others. */
export function isHeldBack({ agoMs, silentMs, others }: Resigned): boolean {
  return agoMs < HELD_BACK_MS && silentMs < FREE_MS && others.length > 0
}
