import type { CommitOptions } from '../coordinator/committer.js'
import { COMMIT_OPTIONS_DEFAULT } from '../coordinator/coordinator.js'
import type { Capabilities } from '../store/store.js'

/** How transactions of the store's own process commit. How long an open one lives is up to its `ttl_ms`. */
export function commitOptionsOf({ onePhaseCommit, asyncCommit, atomicRequests }: Capabilities): CommitOptions {
  const { asyncCommitKeysMax, triesMax } = COMMIT_OPTIONS_DEFAULT
  return {
    // One request of any size is one write, or each key is a write of its own.
    batchBytes: atomicRequests ? Number.POSITIVE_INFINITY : 1,
    onePhase: onePhaseCommit,
    asyncCommitKeysMax: asyncCommit ? asyncCommitKeysMax : 0,
    triesMax,
    isInProcess: atomicRequests,
    heartbeatMaxMs: Number.POSITIVE_INFINITY,
  }
}
