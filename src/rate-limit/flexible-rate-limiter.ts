import { deleteKeys } from '../client/delete-keys.js'
import type { Db } from '../client/index.js'
import { wholeTtl } from '../client/whole-ttl.js'
import { Burst } from './burst.js'
import { hit } from './hit.js'
import { type Hits, readHits } from './hits.js'

/**
 * The package. Its abstract class of limiters on a store is not exported, so this begins with the smallest class that is, and
 * replaces all that it does with its store. `O` are the options of limiters.
 */
export interface FlexiblePackage<O, L> {
  readonly RateLimiterEtcdNonAtomic: abstract new (options: O) => L
  readonly RateLimiterRes: new (
    remainingPoints: number,
    msBeforeNext: number,
    consumedPoints: number,
    isFirst: boolean,
  ) => object
}

/**
 * A limiter of rate-limiter-flexible.
 * @param flexible the package: `import * as flexible from 'rate-limiter-flexible'`.
 * @param options those of its other limiters.
 */
export function flexibleRateLimiter<O extends object, L>(
  flexible: FlexiblePackage<O, L>,
  options: Omit<O, 'storeClient'> & { readonly storeClient: Db },
): L {
  const { storeClient: db } = options
  const Limiter = flexible.RateLimiterEtcdNonAtomic as unknown as new (options: object) => { readonly points: number }

  const burst = new Burst()

  class PerkvLimiter extends Limiter {
    async _upsert(key: string, points: number, durationMs: number, isForced = false): Promise<Hits> {
      if (!isForced) return burst.hit(`${durationMs} ${key}`, points, (sum) => hit(db, key, sum, durationMs))
      const ttl = durationMs > 0 ? wholeTtl(durationMs) : undefined
      await db.put(key, String(points), { ttl })
      return { count: points, leftMs: ttl }
    }

    async _get(key: string): Promise<Hits | null> {
      return (await readHits(db, key)) ?? null
    }

    _delete(key: string): Promise<boolean> {
      return deleteKeys(db, [key])
    }

    _getRateLimiterRes(_key: string, changedPoints: number, { count, leftMs = -1 }: Hits): object {
      return new flexible.RateLimiterRes(Math.max(this.points - count, 0), leftMs, count, count === changedPoints)
    }
  }
  return new PerkvLimiter(options) as unknown as L
}
