import type { History, TxnStatus } from './answers.js'
import type { Server } from './server.js'
import { BANK } from './step-plan.js'
import { idOf } from './wire-bytes.js'

/** Counts a lock of any age as expired. */
const ANY_AGE = Number.MAX_SAFE_INTEGER

/**
 * Gives the accounts of the example their first balances. Transactions left by an earlier run are ended first, however young
 * their locks are.
 */
export async function openBank(server: Server): Promise<void> {
  const ids = BANK.before.map(({ key }) => idOf(key))
  for (const { key } of BANK.before) {
    const { lock } = await server.percolator<History>('mvcc_get_by_key', { key })
    if (lock === null || !ids.includes(idOf(lock.primary))) continue
    const { primary, start_ts } = lock
    const asked = { primary, lock_ts: start_ts, caller_start_ts: 0, current_ts: ANY_AGE, rollback_if_not_exist: true }
    const { status, commit_ts } = await server.percolator<TxnStatus>('check_txn_status', asked)
    if (status !== 'locked') await server.percolator('resolve_lock', { start_ts, commit_ts, keys: [key] })
  }
  await server.post('/v1/txn', { ops: BANK.before.map((pair) => ({ op: 'put', ...pair })) })
}
