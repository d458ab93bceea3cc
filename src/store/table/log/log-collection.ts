import type { Timestamp } from '../../../timestamp.js'
import type { ChangeLog } from '../../change-log.js'
import type { Pace } from '../../pace.js'
import type { ExpiryRows } from './expiry-rows.js'
import type { FeedRow } from './feed-row.js'
import type { LogReader } from './log-reader.js'

export interface LogCollectionOptions {
  readonly feed: FeedRow
  readonly reader: Pick<LogReader, 'trim' | 'sweep'>
  readonly expiries: Pick<ExpiryRows, 'trim'>
  readonly log: Pick<ChangeLog, 'resolve'>
  /** `cleared`: records that no reader at or above it sees may be removed. */
  readonly safePoint: { readonly cleared: Timestamp }
}

/** The part of a collection that concerns the logs of servers. */
export class LogCollection {
  readonly #options: LogCollectionOptions

  constructor(options: LogCollectionOptions) {
    this.#options = options
  }

  /**
   * @returns `safePoint`, or resolved_ts where it is lower: above it the records of primaries tell readers of the logs what has
   *   been committed.
   */
  async passed(safePoint: Timestamp): Promise<Timestamp> {
    const { feed, log } = this.#options
    await feed.look()
    return feed.since === undefined ? safePoint : Math.min(safePoint, await log.resolve())
  }

  /** Removes what only readers below the safe point need. */
  async collect(pace?: Pace): Promise<void> {
    const { feed, reader, expiries, safePoint } = this.#options
    if (feed.since === undefined || pace?.signal?.aborted) return
    const { cleared } = safePoint
    await reader.trim(cleared)
    await reader.sweep()
    await expiries.trim(cleared)
  }
}
