import { type Connection, type Db, physicalMs, type Timestamp } from '../client/index.js'

export interface Hits {
  /** In the present window. */
  readonly count: number
  /** Milliseconds until the window ends; undefined when it does not. */
  readonly leftMs: number | undefined
}

/** Over HTTP a `Db` takes a transaction in one request. */
export function isConnection(db: Db): db is Connection {
  return 'atomic' in db
}

export function hitsOf(count: unknown, expireTs: Timestamp | undefined, nowTs: Timestamp): Hits {
  return {
    count: Number(count),
    leftMs: expireTs === undefined ? undefined : Math.max(0, physicalMs(expireTs) - physicalMs(nowTs)),
  }
}

/** Reads without counting. @returns undefined when there is no window. */
export async function readHits(db: Db, key: string): Promise<Hits | undefined> {
  if (isConnection(db)) {
    const { startTs, results } = await db.atomic({ ops: [{ op: 'get', key }] })
    const [found] = results
    return found?.found ? hitsOf(found.value, found.expireTs, startTs) : undefined
  }
  const snapshot = await db.snapshot()
  const found = await snapshot.getVersion(key)
  return found && hitsOf(found.value, found.expireTs, snapshot.ts)
}
