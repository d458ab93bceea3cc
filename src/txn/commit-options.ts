import type { CommitOptions } from '../coordinator/committer.js'
import { COMMIT_OPTIONS_DEFAULT } from '../coordinator/coordinator.js'
import { JOINT_BYTES_MAX, TABLE_WAIT_MS_MAX } from '../limits.js'
import type { Traits } from '../store/store.js'

export function commitOptionsOf({
  onePhaseCommit,
  plainOnePhaseCommit,
  asyncCommit,
  atomicRequests,
}: Traits): CommitOptions {
  const { batchBytes, asyncCommitKeysMax, triesMax } = COMMIT_OPTIONS_DEFAULT
  return {
    batchBytes: atomicRequests ? Number.POSITIVE_INFINITY : plainOnePhaseCommit ? JOINT_BYTES_MAX : batchBytes,
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
