import { LockResolver } from '../coordinator/lock-resolver.js'
import type { LockInfo as ResolvedLock } from '../errors/lock-info.js'
import type { LockInfo, TxnStatus } from './answers.js'
import { readableMs } from './readable-time.js'
import { Refused, type Server } from './server.js'
import { jsonBytes, sizeOf } from './wire-bytes.js'

/** Counts a lock of any age as expired. */
const ANY_AGE = Number.MAX_SAFE_INTEGER

/** The locks of one transaction, as far as the page has read them. */
export interface Holder {
  readonly startTs: number
  readonly locks: readonly LockInfo[]
  /** Below 0: its time is over, and whoever meets its locks ends them. */
  readonly leftMs: number
}

/** Whose commit it is that decides cannot be asked when the token does not reach the primary. */
export function isHidden({ locks }: Holder): boolean {
  return locks[0] !== undefined && sizeOf(locks[0].primary) === 0
}

/**
 * Does what anybody who meets the locks would do: ends the transaction as its primary decides, unless it may be alive.
 * @returns what has become of it.
 */
export async function resolve(server: Server, holder: Holder): Promise<string> {
  const { now } = await server.percolator<{ now: number }>('tso', {})
  const areGone = await resolverOf(server).resolve(holder.locks.map(resolvedOf), now)
  if (!areGone)
    return `Its owner may be alive: it has prolonged its time since, or has ${readableMs(holder.leftMs)} left.`
  return outcomeOf(await commitTsOf(server, holder), holder)
}

/** Ends a transaction however young it is. One that is committed is finished, because nothing can take that back. */
export async function forceEnd(server: Server, holder: Holder, isCut: boolean): Promise<string> {
  const [first] = holder.locks
  if (first === undefined) return 'It holds no lock any more.'
  const { startTs } = holder
  const resolver = resolverOf(server)
  const commitTs = await resolver.end(jsonBytes(first.primary), startTs)
  await resolver.resolve(holder.locks.map(resolvedOf), ANY_AGE)
  if (isCut) await server.percolator('resolve_lock', { start_ts: startTs, commit_ts: commitTs })
  return outcomeOf(commitTs, holder)
}

function resolverOf(server: Server): LockResolver {
  return new LockResolver(server.calls)
}

/** @returns 0: rolled back, or without a record, as a transaction that held pessimistic locks only. */
async function commitTsOf(server: Server, { locks: [first], startTs }: Holder): Promise<number> {
  const asked = { primary: first?.primary ?? '', lock_ts: startTs, caller_start_ts: 0, current_ts: 0 }
  try {
    return (await server.percolator<TxnStatus>('check_txn_status', asked)).commit_ts
  } catch (error) {
    if (error instanceof Refused && error.code === 'txn_not_found') return 0
    throw error
  }
}

function outcomeOf(commitTs: number, { startTs, locks }: Holder): string {
  const isOne = locks.length === 1
  const keys = `its ${locks.length} locked ${isOne ? 'key' : 'keys'}`
  return commitTs === 0
    ? `The transaction of ${startTs} was rolled back: ${keys} ${isOne ? 'is as it was' : 'are as they were'}, and its commit is refused.`
    : `The transaction of ${startTs} was committed at ${commitTs} already, which nothing takes back: ${keys} ${isOne ? 'was' : 'were'} rolled forward.`
}

function resolvedOf(lock: LockInfo): ResolvedLock {
  const { key, primary, start_ts, for_update_ts, min_commit_ts, use_async_commit, ttl, type } = lock
  return {
    ...{ key: jsonBytes(key), primary: jsonBytes(primary), startTs: start_ts, forUpdateTs: for_update_ts, ttl, type },
    ...{ minCommitTs: min_commit_ts, useAsyncCommit: use_async_commit, txnSize: 0, secondaries: [] },
  }
}
