import type { Timestamp } from '../timestamp.js'

export interface AckRider {
  readonly observer: string
  readonly key: Uint8Array
  readonly fence: Timestamp
}

export interface NotifyRider {
  readonly observer: string
  readonly keys: readonly Uint8Array[]
}

export interface PositionRider {
  readonly consumer: string
  /** The transaction goes on from this position. It is refused if another one has acknowledged since. */
  readonly from: Timestamp
  /** Everything at or below this position is processed with this transaction. */
  readonly ts: Timestamp
}

export interface LeaseRider {
  readonly lease: string
  readonly fence: Timestamp
  /** Index of the check in the client's request. Default: its index in the list. */
  readonly index?: number | undefined
}

/**
 * Effects that travel on a transaction that commits in one phase. They are checked and written in the batch of the mutations, or
 * the transaction is refused. Names are those on the wire.
 */
export interface Riders {
  readonly acks?: readonly AckRider[] | undefined
  readonly notify?: readonly NotifyRider[] | undefined
  readonly positions?: readonly PositionRider[] | undefined
  readonly leases?: readonly LeaseRider[] | undefined
  /**
   * In process only: the work was done before the transaction began (`POST /v1/txn`), so each run has seen its fence and nothing
   * later. Otherwise it has seen the transaction's start_ts.
   */
  readonly seesFence?: boolean | undefined
  /**
   * In process only: the committer checks the leases, and there are no other riders. The prewrite is then one of two phases. See
   * `ValidateReadsRequest.leases`.
   */
  readonly leasesCheckedAtCommit?: boolean | undefined
}

/**
 * @returns the primary of a transaction of riders alone, which leaves nothing at this key; undefined when no rider changes
 *   anything, because leases are only checked.
 */
export function primaryOf({ acks = [], notify = [], positions = [] }: Riders): Uint8Array | undefined {
  const [position] = positions
  const key = acks[0]?.key ?? notify.find(({ keys }) => keys.length > 0)?.keys[0]
  return key ?? (position && new TextEncoder().encode(position.consumer))
}
