import { type Connection, type Db, isKvError } from '../client/index.js'
import { wholeTtl } from '../client/whole-ttl.js'
import { type Hits, hitsOf, isConnection } from './hits.js'

/** @returns the length in milliseconds of a new window that begins with this hit; undefined leaves the window as it is. */
export type Renewal = (count: number) => number | undefined

/** Servers of a shared store may lose races of one counter to each other. */
const RETRIES = 100

/**
 * Counts a hit in a window that begins with the first hit. Of many hits at the same time, of whatever clients, each gets a count
 * of its own.
 * @param windowMs 0: the window does not end.
 * @param renew takes several requests over HTTP.
 */
export function hit(db: Db, key: string, by: number, windowMs: number, renew?: Renewal): Promise<Hits> {
  const ttlMs = windowMs > 0 ? wholeTtl(windowMs) : undefined
  return isConnection(db) && renew === undefined
    ? hitInOneRequest(db, key, by, ttlMs)
    : hitInTransaction(db, key, by, ttlMs, renew)
}

/**
 * One request counts in the window that is there. Only where there is none, a second one begins it; another client may do so
 * first, or the window may end, so the two take turns.
 */
async function hitInOneRequest(db: Connection, key: string, by: number, ttlMs: number | undefined): Promise<Hits> {
  for (let exists = true; ; exists = !exists) {
    const count = exists
      ? ({ op: 'increment', key, by } as const)
      : ({ op: 'put', key, value: String(by), ttlMs } as const)
    try {
      const { startTs, results } = await db.atomic({
        checks: [{ key, exists }],
        ops: [count, { op: 'get', key }],
        maxRetries: RETRIES,
      })
      const counted = results[1]
      return hitsOf(counted?.value, counted?.expireTs, startTs)
    } catch (error) {
      if (!isKvError(error, 'precondition_failed')) throw error
    }
  }
}

function hitInTransaction(
  db: Db,
  key: string,
  by: number,
  ttl: number | undefined,
  renew: Renewal | undefined,
): Promise<Hits> {
  return db.transaction(
    async (txn) => {
      const isFirst = (await txn.getForUpdate(key)) === undefined
      const count = await txn.increment(key, by, isFirst ? { ttl } : {})
      const renewed = isFirst ? undefined : renew?.(count)
      if (renewed !== undefined) await txn.put(key, String(count), { ttl: wholeTtl(renewed) })
      return hitsOf(count, (await txn.getVersion(key))?.expireTs, txn.startTs)
    },
    { mode: 'pessimistic', retries: RETRIES },
  )
}
