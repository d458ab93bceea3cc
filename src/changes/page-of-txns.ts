import type { Timestamp } from '../timestamp.js'
import type { FeedEvent, FeedTxn } from './rules/changes-api.js'

export interface PageSizes {
  /** In transactions. */
  readonly limit: number
  readonly bytesMax: number
  /** Transactions of one commit_ts are kept together in memory up to this size, also beyond `bytesMax`. */
  readonly heldMax: number
}

/** Collects one page of a feed. Transactions of one commit_ts are never split. */
export class PageOfTxns {
  readonly txns: FeedTxn[] = []
  readonly #sizes: PageSizes
  /** Everything at or below it is in the page. */
  #nextTs: Timestamp = 0
  #isFull = false
  #count = 0
  #bytes = 0
  /** The last transactions, all of one commit_ts. More of it may follow. */
  #group: FeedTxn[] = []
  #groupBytes = 0

  constructor(sizes: PageSizes) {
    this.#sizes = sizes
  }

  get nextTs(): Timestamp {
    return this.#nextTs
  }
  get isFull(): boolean {
    return this.#isFull
  }

  /**
   * Set when the first transactions of the page, all of one commit_ts, exceed `heldMax`. The page consists of those added so
   * far, and nothing else can be added.
   */
  get long(): { readonly commitTs: Timestamp; readonly txns: readonly FeedTxn[] } | undefined {
    const [first] = this.#group
    if (first === undefined || this.#isFull || this.#groupBytes <= this.#sizes.heldMax) return undefined
    return { commitTs: first.commitTs, txns: this.#group }
  }

  add(event: Extract<FeedEvent, { readonly type: 'txn' | 'resolved' }>): void {
    if (event.type === 'resolved') {
      this.#endGroup()
      if (!this.#isFull) this.#nextTs = Math.max(this.#nextTs, event.resolvedTs)
      return
    }
    if (this.#group[0]?.commitTs !== event.commitTs) this.#endGroup()
    if (this.#isFull) return
    const { type: _, ...txn } = event
    this.#group.push(txn)
    this.#groupBytes += txnBytes(txn)
    if (this.txns.length > 0 && this.#groupBytes > this.#sizes.bytesMax) this.#isFull = true
  }

  #endGroup(): void {
    const [first] = this.#group
    if (first === undefined || this.#isFull) return
    const { limit, bytesMax } = this.#sizes
    if (this.txns.length > 0 && this.#bytes + this.#groupBytes > bytesMax) {
      this.#isFull = true
      return
    }
    for (const txn of this.#group) {
      this.txns.push(txn)
      if (txn.isLast !== false) this.#count++
    }
    this.#nextTs = first.commitTs
    this.#bytes += this.#groupBytes
    this.#isFull = this.#count >= limit || this.#bytes >= bytesMax
    this.#group = []
    this.#groupBytes = 0
  }
}

function txnBytes({ changes }: FeedTxn): number {
  let bytes = 0
  for (const { key, value, old, end } of changes)
    bytes += key.length + (value?.length ?? 0) + (old?.value.length ?? 0) + (end?.length ?? 0)
  return bytes
}
