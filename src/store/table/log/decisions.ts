import { isReserved } from '../../../bytes/reserved-keys.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { Timestamp } from '../../../timestamp.js'
import type { FeedRow } from './feed-row.js'
import type { Decision } from './log-record.js'
import type { ServerLog } from './server-log.js'

const RETRY_MS = 1000

type PrimaryCommit = Omit<Decision, 'number'>

interface Written {
  readonly isWhole: boolean
  readonly wasUncertain: boolean
}

export interface DecisionsOptions {
  readonly feed: Pick<FeedRow, 'since' | 'before'>
  readonly log: Pick<ServerLog, 'decide' | 'close'>
  /** @returns the commit_ts on record; 0: there is none at the moment. */
  readonly look: (primary: Uint8Array, startTs: Timestamp) => Promise<Timestamp>
  /** As `LogReaderOptions.end`. */
  readonly end: (primary: Uint8Array, startTs: Timestamp) => Promise<Timestamp>
}

/** Logs the commits of primaries that this server makes, once there is a reader of changes. */
export class Decisions {
  readonly #options: DecisionsOptions
  #isClosed = false

  constructor(options: DecisionsOptions) {
    this.#options = options
  }

  /** Await before `isLogged`. @returns undefined when it is known whether there is a reader. */
  before(commitTs: Timestamp, last: Timestamp): undefined | Promise<void> {
    return this.#options.feed.before(commitTs, last)
  }

  isLogged(commitTs: Timestamp): boolean {
    const { since } = this.#options.feed
    return since !== undefined && commitTs > since
  }

  /**
   * Logs the commit, writes the primary, and logs the outcome.
   * @param write changes the primary's row, on the condition that it is as it was read.
   */
  async around<T extends Written>({ keys, ...commit }: PrimaryCommit, write: () => Promise<T>): Promise<T> {
    const { log, look } = this.#options
    const { primary, startTs, commitTs } = commit
    const settle = await log.decide({ ...commit, keys: keys.filter((key) => !isReserved(key)) })
    let isSettled = false
    try {
      const written = await write()
      // A refused change cannot land any more, but an earlier copy may have landed before the row changed again.
      const isCommitted = written.isWhole || (written.wasUncertain && (await look(primary, startTs)) === commitTs)
      settle(isCommitted)
      isSettled = true
      return written
    } finally {
      if (!isSettled) void this.#end(commit, settle)
    }
  }

  /** A copy of the write may still be under way, so the transaction is ended. */
  async #end(
    { primary, startTs, commitTs }: Omit<PrimaryCommit, 'keys'>,
    settle: (isCommitted: boolean) => void,
  ): Promise<void> {
    while (!this.#isClosed)
      try {
        return settle((await this.#options.end(primary, startTs)) === commitTs)
      } catch {
        await sleep(RETRY_MS)
      }
  }

  close(): Promise<void> {
    this.#isClosed = true
    return this.#options.log.close()
  }
}
