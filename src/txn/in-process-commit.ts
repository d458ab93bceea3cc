import type { CommitOptions } from '../client/committer.js'
import { COMMIT_OPTIONS_DEFAULT } from '../client/coordinator.js'

/** One LevelDB writes a batch of any size as one: a transaction of its own process never needs a second phase. */
export const IN_PROCESS_COMMIT: CommitOptions = { ...COMMIT_OPTIONS_DEFAULT, batchBytes: Number.POSITIVE_INFINITY }
