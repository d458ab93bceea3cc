import type { PercolatorApi, PrewriteAnswer, PrewriteRequest } from '../percolator/api.js'
import type { PendingOutcome } from './idempotency.js'

/**
 * Claims the outcome of a transaction beside its first prewrite. No prewrite ends before the claim has, so nothing commits without it.
 * @param claim undefined: there is none to be claimed.
 */
export function claimed(
  prewrite: PercolatorApi['prewrite'],
  claim: ((txn: PendingOutcome) => Promise<void>) | undefined,
): PercolatorApi['prewrite'] {
  if (claim === undefined) return prewrite
  let claiming: Promise<void> | undefined
  return async (request: PrewriteRequest): Promise<PrewriteAnswer> => {
    claiming ??= claim({ startTs: request.startTs, primary: request.primary })
    const [made, prewritten] = await Promise.allSettled([claiming, prewrite(request)])
    if (made.status === 'rejected') throw made.reason
    if (prewritten.status === 'rejected') throw prewritten.reason
    return prewritten.value
  }
}
