import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'

const TRANSACTIONS_MAX = 1_000_000

export interface Seen {
  readonly commitTs: Timestamp
  readonly rowKey: Buffer
}

/**
 * Outcomes of transactions in all rows; a transaction has one. Beyond a million transactions only a half of them, then a quarter
 * and so on are compared, each still in all of its rows. So memory is bounded, and findings stay certain.
 */
export class ComparedTransactions {
  readonly #max: number
  readonly #seen = new Map<Timestamp, Seen>()
  oneIn = 1

  constructor(max = TRANSACTIONS_MAX) {
    this.#max = max
  }

  get count(): number {
    return this.#seen.size
  }

  /** @returns the outcome in an earlier row, if it is another one. */
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

/** A hash of 32 bits that spreads neighbouring timestamps. */
function mixed(ts: Timestamp): number {
  let bits = (ts ^ Math.floor(ts / 2 ** 32)) >>> 0
  bits = Math.imul(bits ^ (bits >>> 16), 0x45d9f3b)
  bits = Math.imul(bits ^ (bits >>> 16), 0x45d9f3b)
  return (bits ^ (bits >>> 16)) >>> 0
}
