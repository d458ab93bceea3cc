import { resolveLock as decideLock } from '../../percolator/actions/resolve-lock.js'
import type { DecidedTxn, ResolveLockAnswer, ResolveLockRequest } from '../../percolator/api.js'
import { done, type Mutation, type RowView } from '../../percolator/row.js'
import type { DepthOf, RowAccess } from './row-access.js'

const LOCKS_AT_A_TIME = 256

export async function resolveLock(rows: RowAccess, request: ResolveLockRequest): Promise<ResolveLockAnswer> {
  const { txns, keys } = request
  if (keys !== undefined) {
    const [txn] = txns
    return { resolved: txn === undefined ? 0 : await resolve(rows, keys, txn, request) }
  }
  const byStart = new Map(txns.map((txn) => [txn.startTs, txn]))
  let resolved = 0
  for (const [startTs, locked] of await rows.lockedBy(new Set(byStart.keys())))
    for (let from = 0; from < locked.length; from += LOCKS_AT_A_TIME) {
      const some = locked.slice(from, from + LOCKS_AT_A_TIME)
      resolved += await resolve(rows, some, byStart.get(startTs) as DecidedTxn, request)
    }
  return { resolved }
}

async function resolve(
  rows: RowAccess,
  keys: readonly Uint8Array[],
  { startTs, commitTs }: DecidedTxn,
  { keys: named, isDecided = false, mayAccess, stages }: ResolveLockRequest,
): Promise<number> {
  await rows.observe(commitTs)
  // A commit of a locked key needs no history, unless the lock may turn out to be late.
  const isSure = commitTs > 0 && rows.clearedTs === undefined
  const depth: DepthOf = (_, lock) => (isSure && lock?.startTs === startTs ? 'none' : 'txn')
  const decide = (found: readonly RowView[]) => {
    let resolved = 0
    const mutations: Mutation[] = []
    for (const row of found) {
      const isLate = row.lock?.startTs === startTs && startTs < (rows.clearedTs ?? 0)
      const outcome = decideLock(row, startTs, isLate ? 0 : commitTs, named !== undefined, isDecided)
      if (!outcome.ok) return outcome
      mutations.push(...outcome.mutations)
      if (outcome.value.released) resolved++
    }
    return done(resolved, mutations)
  }
  const resolved = await rows.update({ keys, startTs, depth, decide, mayAccess, stages })
  rows.meters.resolvedLocks[commitTs > 0 ? 'committed' : 'rolledBack'] += resolved
  return resolved
}
