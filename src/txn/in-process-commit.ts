import type { CommitOptions } from '../coordinator/committer.js'
import { COMMIT_OPTIONS_DEFAULT } from '../coordinator/coordinator.js'

/**
 * One LevelDB writes a batch of any size as one: a transaction of its own process never needs a second phase. And how long
 * an open one lives is up to its `ttl_ms`.
 */
export const IN_PROCESS_COMMIT: CommitOptions = {
  ...COMMIT_OPTIONS_DEFAULT,
  batchBytes: Number.POSITIVE_INFINITY,
  isInProcess: true,
  heartbeatMaxMs: Number.POSITIVE_INFINITY,
}
