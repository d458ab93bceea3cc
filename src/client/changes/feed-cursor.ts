import { keyText } from '../../bytes/key-text.js'
import type { FeedChange, FeedEvent, StreamRequest } from '../../changes/rules/changes-api.js'
import { type FeedPosition, feedPositionText } from '../../changes/rules/feed-position.js'
import type { Timestamp } from '../../timestamp.js'

/** A change, or a pair of a snapshot as the put that made it. */
interface GivenChange extends FeedChange {
  readonly commitTs: Timestamp
}

export interface GivenTxn {
  readonly isSnapshot: boolean
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  readonly changes: readonly GivenChange[]
  readonly part: number
  readonly isLast: boolean
  readonly position: string
}

export type Given = { readonly txn: GivenTxn } | { readonly resolvedTs: Timestamp }

type HeldTxn = Omit<GivenTxn, 'position'>
type Pair = Extract<FeedEvent, { type: 'pair' }>

/**
 * The position of one loop in a feed that comes over several connections, one after the other. Each connection begins at or
 * below the end of the one before; what was delivered already is skipped.
 *
 * The last transaction of a batch is held until the next event, because another of the same commit_ts may follow. Only then is
 * it known whether the feed can continue after that timestamp. A burst ends with a `resolved`, so it is not held for long.
 */
export class FeedCursor {
  /** Where the next connection begins; undefined: at the position of the consumer. */
  #position: FeedPosition | undefined
  /** True until the snapshot has ended. */
  #isSnapshot: boolean
  #snapshotParts: number
  /** The newest delivered transaction, or a part of it. */
  #last: HeldTxn | undefined
  #held: HeldTxn | undefined
  /** From earlier connections: transactions up to here are skipped. */
  #seen: HeldTxn | undefined

  /**
   * @param position undefined: the begin of the snapshot, or the position of the consumer.
   * @param isSnapshot whether to begin with a snapshot, unless the position is that of a transaction.
   */
  constructor(position: FeedPosition | undefined, isSnapshot: boolean) {
    this.#position = position
    this.#isSnapshot = isSnapshot || position?.snapshotKey !== undefined
    this.#snapshotParts = position?.snapshotKey === undefined ? 0 : 1
  }

  /** Returns the begin of the next connection, whose events `take` gets from now on. */
  reopen(): Pick<StreamRequest, 'sinceTs' | 'snapshot' | 'snapshotAfter'> {
    this.#held = undefined
    const { ts, snapshotKey: key } = this.#position ?? {}
    this.#seen = this.#last !== undefined && this.#last.commitTs > (ts ?? 0) ? this.#last : undefined
    if (ts === undefined) return this.#isSnapshot ? { snapshot: true } : {}
    return key === undefined ? { sinceTs: ts } : { snapshotAfter: { ts, key } }
  }

  /** Returns the items that are new. They count as delivered. */
  take(events: readonly FeedEvent[]): Given[] {
    const given: Given[] = []
    let pairs: Pair[] = []
    const give = (txn: HeldTxn, position: FeedPosition): void => {
      this.#position = position
      if (!txn.isSnapshot) this.#last = txn
      given.push({ txn: { ...txn, position: feedPositionText(position) } })
    }
    const giveHeld = (isComplete: boolean): void => {
      const held = this.#held
      this.#held = undefined
      if (held !== undefined) give(held, { ts: isComplete && held.isLast ? held.commitTs : held.commitTs - 1 })
    }
    const givePairs = (position: FeedPosition, isLast: boolean): void => {
      const { ts } = position
      const part = this.#snapshotParts++
      give({ isSnapshot: true, commitTs: ts, startTs: ts, changes: pairs.map(putOf), part, isLast }, position)
      pairs = []
    }
    for (const event of events) {
      if (event.type === 'pair') pairs.push(event)
      else if (event.type === 'snapshot_end') {
        this.#isSnapshot = false
        givePairs({ ts: event.ts }, true)
      } else if (event.type === 'txn') {
        const txn = this.#unseen(event)
        if (txn === undefined) continue
        giveHeld(this.#held !== undefined && this.#held.commitTs < txn.commitTs)
        this.#held = txn
      } else if (!this.#isSnapshot) {
        const { resolvedTs } = event
        giveHeld(this.#held !== undefined && this.#held.commitTs <= resolvedTs)
        if (resolvedTs >= (this.#position?.ts ?? 0)) this.#position = { ts: resolvedTs }
        given.push({ resolvedTs })
      }
    }
    const last = pairs.at(-1)
    if (last !== undefined) givePairs({ ts: last.ts, snapshotKey: last.key }, false)
    return given
  }

  /** The rest of a transaction that may have been delivered in part. @returns undefined when nothing is left. */
  #unseen({ commitTs, startTs, changes, part, isLast = part === undefined }: TxnEvent): HeldTxn | undefined {
    const seen = this.#seen
    const order = seen === undefined ? 1 : commitTs - seen.commitTs || startTs - seen.startTs
    if (order > 0) this.#seen = undefined
    if (seen !== undefined && (order < 0 || (order === 0 && seen.isLast))) return undefined
    const rest = seen === undefined || order > 0 ? changes : changes.filter(isAfter(seen.changes.at(-1)?.key))
    if (rest.length === 0 && !isLast) return undefined
    const before = this.#held ?? this.#last
    const isNext = before?.commitTs === commitTs && before.startTs === startTs && !before.isLast
    return {
      isSnapshot: false,
      commitTs,
      startTs,
      changes: rest.map((change) => ({ ...change, commitTs })),
      part: isNext ? before.part + 1 : 0,
      isLast,
    }
  }
}

type TxnEvent = Extract<FeedEvent, { type: 'txn' }>

function putOf({ key, value, commitTs }: Pair): GivenChange {
  return { op: 'put', key, value, commitTs }
}

function isAfter(last: Uint8Array | undefined): (change: FeedChange) => boolean {
  const text = last && keyText(last)
  return ({ key }) => text === undefined || keyText(key) > text
}
