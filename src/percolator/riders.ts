import type { Timestamp } from '../timestamp.js'

/** One cell that a run acknowledges. */
export interface AckRider {
  /** Name of the observer. */
  readonly observer: string
  readonly key: Uint8Array
  /** From the claim. */
  readonly fence: Timestamp
}

export interface NotifyRider {
  readonly observer: string
  readonly keys: readonly Uint8Array[]
}

/** A step of a consumer through the feed. */
export interface PositionRider {
  readonly consumer: string
  /** The position that the transaction goes on from. It is refused if somebody has acknowledged since. */
  readonly from: Timestamp
  /** Everything at or below it is done with this transaction. */
  readonly ts: Timestamp
}

/** A lease that must be held under this fence when the transaction commits. */
export interface LeaseRider {
  readonly lease: string
  readonly fence: Timestamp
  /** Of the check in the request. Default: its place in the list. */
  readonly index?: number | undefined
}

/**
 * What travels on a transaction that commits in one phase: it is checked and written in the batch of the mutations, or the
 * transaction is refused. Names are those on the wire.
 */
export interface Riders {
  readonly acks?: readonly AckRider[] | undefined
  readonly notify?: readonly NotifyRider[] | undefined
  readonly positions?: readonly PositionRider[] | undefined
  readonly leases?: readonly LeaseRider[] | undefined
  /**
   * In process only: the work was done before the transaction began (`POST /v1/txn`), so each run has seen its fence and no
   * more. Otherwise it has seen the transaction's start_ts.
   */
  readonly seesFence?: boolean | undefined
  /**
   * In process only: whoever commits judges the leases, and there are no other riders. The prewrite then is one of two phases. See
   * `ValidateReadsRequest.leases`.
   */
  readonly judgedAtCommit?: boolean | undefined
}

/**
 * The primary of a transaction of riders alone. It leaves nothing behind at this key.
 * @returns undefined when there are no riders that change anything: a lease is only checked.
 */
export function primaryOf({ acks = [], notify = [], positions = [] }: Riders): Uint8Array | undefined {
  const [position] = positions
  const key = acks[0]?.key ?? notify.find(({ keys }) => keys.length > 0)?.keys[0]
  return key ?? (position && new TextEncoder().encode(position.consumer))
}
