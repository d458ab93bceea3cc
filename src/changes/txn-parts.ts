import type { Timestamp } from '../timestamp.js'
import type { TxnEvent } from './committed-txn.js'
import type { FeedChange } from './rules/changes-api.js'

/** Joins ordered changes into transactions. A transaction longer than `partBytesMax` is split into parts. */
export class TxnParts {
  readonly #partBytesMax: number
  #ready: TxnEvent[] = []
  #readyBytes = 0
  #commitTs: Timestamp = 0
  #startTs: Timestamp = 0
  #isOfExpiries = false
  #changes: FeedChange[] = []
  #bytes = 0
  #part = 0

  constructor(partBytesMax: number) {
    this.#partBytesMax = partBytesMax
  }

  /** Bytes that `take` would return. */
  get readyBytes(): number {
    return this.#readyBytes
  }

  /** Bytes of changes that no `take` has returned. */
  get keptBytes(): number {
    return this.#readyBytes + this.#bytes
  }

  add(commitTs: Timestamp, startTs: Timestamp, change: FeedChange, bytes: number): void {
    const isOfExpiries = change.op === 'expire'
    const isSame = commitTs === this.#commitTs && startTs === this.#startTs && isOfExpiries === this.#isOfExpiries
    if (!isSame) this.#end()
    else if (this.#bytes + bytes > this.#partBytesMax && this.#changes.length > 0) this.#emit(false)
    this.#commitTs = commitTs
    this.#startTs = startTs
    this.#isOfExpiries = isOfExpiries
    this.#changes.push(change)
    this.#bytes += bytes
  }

  /** Call when all changes at or below `ts` were added. */
  endUpTo(ts: Timestamp): void {
    if (this.#commitTs <= ts) this.#end()
  }

  take(): TxnEvent[] {
    const ready = this.#ready
    this.#ready = []
    this.#readyBytes = 0
    return ready
  }

  #end(): void {
    if (this.#changes.length > 0) this.#emit(true)
    this.#part = 0
  }

  #emit(isLast: boolean): void {
    const [commitTs, startTs, changes] = [this.#commitTs, this.#startTs, this.#changes]
    const isWhole = isLast && this.#part === 0
    const part = this.#part++
    this.#ready.push({ type: 'txn', commitTs, startTs, changes, ...(isWhole ? {} : { part, isLast }) })
    this.#readyBytes += this.#bytes
    this.#changes = []
    this.#bytes = 0
  }
}
