import { LOCK_TTL_MS_DEFAULT } from '../limits.js'
import type { PrewriteMutation, PrewriteRequest, ReadSet } from '../percolator/api.js'
import type { CommitEffects } from '../percolator/commit-effects.js'
import type { Timestamp } from '../timestamp.js'

export function onePhaseRequest(
  startTs: Timestamp,
  primary: Uint8Array,
  mutations: readonly PrewriteMutation[],
  reads?: ReadSet,
  commitEffects?: CommitEffects,
): PrewriteRequest {
  return {
    mutations,
    primary,
    startTs,
    lockTtl: LOCK_TTL_MS_DEFAULT,
    txnSize: mutations.length,
    tryOnePc: true,
    linearizable: true,
    isFirst: true,
    reads,
    commitEffects,
  }
}
