import type { CommitOptions } from '../coordinator/committer.js'
import { COMMIT_OPTIONS_DEFAULT } from '../coordinator/coordinator.js'
import type { Capabilities } from '../store/store.js'

/** Options for transactions that run in the store's process. Heartbeats never stop: `ttl_ms` ends idle transactions. */
export function commitOptionsOf({ onePhaseCommit, asyncCommit, atomicRequests }: Capabilities): CommitOptions {
  const { asyncCommitKeysMax, triesMax } = COMMIT_OPTIONS_DEFAULT
  return {
    // With atomic requests one batch may have any size. Otherwise each key is a separate write anyway.
    batchBytes: atomicRequests ? Number.POSITIVE_INFINITY : 1,
    onePhase: onePhaseCommit,
    asyncCommitKeysMax: asyncCommit ? asyncCommitKeysMax : 0,
    triesMax,
    isInProcess: atomicRequests,
    heartbeatMaxMs: Number.POSITIVE_INFINITY,
  }
}
