import { type Connection, isKvError, physicalMs, type Records, type Timestamp } from '../../client/index.js'
import { timeOf } from '../client/time-of.js'

export interface Held {
  readonly primary: Uint8Array | string
  readonly startTs: Timestamp
  /** Milliseconds. Its owner prolongs that of the primary alone. */
  readonly ttl?: number
}

/** What has become of the transaction of a lock, by the records of its primary, and what ends the lock. Changes nothing. */
export async function holderOf(db: Connection, { primary, startTs, ttl }: Held, now: Timestamp): Promise<object> {
  const state = await stateOf(db, { primary, startTs, ttl: ttl ?? 0 }, now)
  return { startTs, began: timeOf(startTs), primary, ...state }
}

async function stateOf(db: Connection, { primary, startTs, ttl }: Required<Held>, now: Timestamp): Promise<object> {
  const records = await recordsOf(db, primary)
  if (records === undefined) return { state: 'unknown', end: 'the token of this connection does not reach the primary' }
  const { lock, writes } = records
  const commit = writes.find((write) => write.startTs === startTs && write.type !== 'rollback')
  if (commit !== undefined)
    return { state: 'committed', commitTs: commit.commitTs, end: 'the next call that meets the lock commits its key' }
  if (writes.some((write) => write.commitTs === startTs && (write.type === 'rollback' || write.overlappedRollback)))
    return { state: 'rolled back', end: 'the next call that meets the lock removes it' }
  const own = lock?.startTs === startTs ? lock : undefined
  const ttlLeftMs = Math.max(0, physicalMs(startTs) + (own?.ttl ?? ttl) - physicalMs(now))
  if (ttlLeftMs === 0) return { state: 'abandoned', ttlLeftMs, end: own?.useAsyncCommit ? ASYNC_END : ABANDONED_END }
  return { state: 'running', ttlLeftMs, end: own === undefined ? EARLY_END : RUNNING_END }
}

/** @returns undefined where the token does not reach the key: then the server does not name it in locks. */
async function recordsOf(db: Connection, primary: Uint8Array | string): Promise<Records<'bytes'> | undefined> {
  if (primary.length === 0) return undefined
  return db.mvcc(primary, { as: 'bytes' }).catch((error) => {
    if (isKvError(error, 'forbidden')) return undefined
    throw error
  })
}

const RUNNING_END =
  'its owner commits it, rolls it back or prolongs it; without that, the next call that meets the lock after ttl_left_ms rolls it back'
const EARLY_END =
  'the primary has neither a lock nor a record of it, so its first write may be on the way; after ttl_left_ms the next call that meets the lock rolls it back'
const ABANDONED_END = 'the next get, scan or write that meets the lock rolls the transaction back'
const ASYNC_END =
  'the next get, scan or write that meets the lock asks the other keys of the transaction: it is committed if all are locked, and else rolled back'
