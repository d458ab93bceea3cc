import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'

const TRANSACTIONS_MAX = 1_000_000

export interface Seen {
  /** 0: rolled back. */
  readonly commitTs: Timestamp
  readonly rowKey: Buffer
}

/**
 * What became of transactions in all rows. One transaction has one outcome. Beyond a million of them a half, a quarter and so on
 * are compared, each in all of its rows: so memory is bounded, and what is found is no less certain.
 */
export class ComparedTransactions {
  readonly #max: number
  readonly #seen = new Map<Timestamp, Seen>()
  /** One in so many is compared. */
  oneIn = 1

  constructor(max = TRANSACTIONS_MAX) {
    this.#max = max
  }

  get count(): number {
    return this.#seen.size
  }

  /** @returns the outcome in an earlier row, if that is another one. */
  contradictionOf({ type, startTs, commitTs }: WriteRecord, rowKey: Buffer): Seen | undefined {
    if (mixed(startTs) % this.oneIn !== 0) return undefined
    const outcome = type === 'rollback' ? 0 : commitTs
    const seen = this.#seen.get(startTs)
    if (seen !== undefined) return seen.commitTs === outcome ? undefined : seen
    this.#seen.set(startTs, { commitTs: outcome, rowKey })
    if (this.#seen.size <= this.#max) return undefined
    this.oneIn *= 2
    for (const ts of this.#seen.keys()) if (mixed(ts) % this.oneIn !== 0) this.#seen.delete(ts)
    return undefined
  }
}

/** Neighbouring timestamps come apart. 32 bits. */
function mixed(ts: Timestamp): number {
  let bits = (ts ^ Math.floor(ts / 2 ** 32)) >>> 0
  bits = Math.imul(bits ^ (bits >>> 16), 0x45d9f3b)
  bits = Math.imul(bits ^ (bits >>> 16), 0x45d9f3b)
  return (bits ^ (bits >>> 16)) >>> 0
}
