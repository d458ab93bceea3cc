import type { Timestamp } from '../timestamp.js'

export interface AckEffect {
  readonly observer: string
  readonly key: Uint8Array
  readonly fence: Timestamp
}

export interface NotifyEffect {
  readonly observer: string
  readonly keys: readonly Uint8Array[]
}

export interface PositionEffect {
  readonly consumer: string
  /** The transaction goes on from this position. It is refused if another one has acknowledged since. */
  readonly from: Timestamp
  /** Everything at or below this position is processed with this transaction. */
  readonly ts: Timestamp
}

export interface LeaseGuard {
  readonly lease: string
  readonly fence: Timestamp
  /** Index of the check in the client's request. Default: its index in the list. */
  readonly index?: number | undefined
}

/**
 * Effects that travel on a transaction that commits in one phase. They are checked and written in the batch of the mutations, or
 * the transaction is refused. On the wire they are the `riders` of a prewrite.
 */
export interface CommitEffects {
  readonly acks?: readonly AckEffect[] | undefined
  readonly notify?: readonly NotifyEffect[] | undefined
  readonly positions?: readonly PositionEffect[] | undefined
  readonly leases?: readonly LeaseGuard[] | undefined
  /**
   * In process only: the work was done before the transaction began (`POST /v1/txn`), so each run has seen its fence and nothing
   * later. Otherwise it has seen the transaction's start_ts.
   */
  readonly seesFence?: boolean | undefined
  /**
   * In process only: the committer checks the leases, and there are no other commit effects. The prewrite is then one of two
   * phases. See `ValidateReadsRequest.leases`.
   */
  readonly leasesCheckedAtCommit?: boolean | undefined
}

/**
 * @returns the primary of a transaction of commit effects alone, which leaves nothing at this key; undefined when no commit
 *   effect changes anything, because leases are only checked.
 */
export function primaryOf({ acks = [], notify = [], positions = [] }: CommitEffects): Uint8Array | undefined {
  const [position] = positions
  const key = acks[0]?.key ?? notify.find(({ keys }) => keys.length > 0)?.keys[0]
  return key ?? (position && new TextEncoder().encode(position.consumer))
}
