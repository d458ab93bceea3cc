import { isKvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { LOCK_WAIT_MS_DEFAULT } from '../limits.js'
import type { PrewriteMutation } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import { Backoff } from './backoff.js'
import { Committer, type TransactionContext } from './committer.js'
import { Undetermined } from './undetermined.js'

const TRIES_MAX = 20

/**
 * Commits a transaction of one row. Tries again after a conflict, and when another server has rolled the transaction back because
 * this process stalled for longer than its locks last.
 * @param mutationAt decides at a start_ts.
 * @returns the commit_ts.
 */
export async function commitRow(
  context: TransactionContext,
  mutationAt: (startTs: Timestamp) => Awaitable<PrewriteMutation>,
): Promise<Timestamp> {
  const backoff = new Backoff()
  for (let left = TRIES_MAX; ; left--) {
    const startTs = await context.api.tso(1)
    const mutation = await mutationAt(startTs)
    const plan = {
      ...{ startTs, mutations: [mutation], primary: mutation.key, startedAt: performance.now() },
      lockWaitMs: LOCK_WAIT_MS_DEFAULT,
    }
    try {
      return await new Committer(context, plan).run()
    } catch (error) {
      const isConflict = isKvError(error, 'write_conflict') || isKvError(error, 'txn_lock_not_found')
      if (!isConflict || left === 0) throw error instanceof Undetermined ? error.cause : error
      await backoff.wait()
    }
  }
}
