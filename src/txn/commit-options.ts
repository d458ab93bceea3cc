import type { CommitOptions } from '../coordinator/committer.js'
import { COMMIT_OPTIONS_DEFAULT } from '../coordinator/coordinator.js'
import { TABLE_WAIT_MS_MAX } from '../limits.js'
import type { Traits } from '../store/store.js'

/** A transaction of more is prewritten in several requests. */
const JOINT_BATCH_BYTES = 1 << 20

export function commitOptionsOf({
  onePhaseCommit,
  plainOnePhaseCommit,
  asyncCommit,
  atomicRequests,
}: Traits): CommitOptions {
  const { batchBytes, asyncCommitKeysMax, triesMax } = COMMIT_OPTIONS_DEFAULT
  return {
    batchBytes: atomicRequests ? Number.POSITIVE_INFINITY : plainOnePhaseCommit ? JOINT_BATCH_BYTES : batchBytes,
    commitsPrimaryAlone: !atomicRequests,
    onePhase: onePhaseCommit,
    plainOnePhase: plainOnePhaseCommit && !onePhaseCommit,
    checksLeasesAtCommit: !onePhaseCommit,
    asyncCommitKeysMax: asyncCommit ? asyncCommitKeysMax : 0,
    triesMax,
    // A shared table has repeated its calls for as long already.
    repeatMsMax: atomicRequests ? Number.POSITIVE_INFINITY : TABLE_WAIT_MS_MAX,
    isInProcess: atomicRequests,
    heartbeatMaxMs: Number.POSITIVE_INFINITY,
  }
}
