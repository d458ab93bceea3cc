import { callBack } from '../client/call-back.js'
import type { Db } from '../client/index.js'
import { requirePrefix } from '../client/require-prefix.js'
import { Burst } from './burst.js'
import { hit, type Renewal } from './hit.js'
import { type Hits, readHits } from './hits.js'

export interface FastifyRateLimitStoreOptions {
  /** Every key begins with it. Default `rate-limit/`. */
  readonly prefix?: string | undefined
}

type Counted = (error: Error | null, result?: { current: number; ttl: number }) => void

/** What @fastify/rate-limit calls. */
export interface FastifyRateLimitStore {
  incr(key: string, callback: Counted, timeWindow?: number, max?: number): void
  /** The same without counting. */
  read(key: string, callback: Counted): void
  child(route: object): FastifyRateLimitStore
}

interface Settings {
  readonly continueExceeding?: unknown
  readonly exponentialBackoff?: unknown
  readonly routeInfo?: { readonly method?: unknown; readonly url?: unknown }
}

/** @returns the `store` of @fastify/rate-limit, which makes one of it for the app, and one for each route with limits of its own. */
export function fastifyRateLimitStore(
  db: Db,
  { prefix = 'rate-limit/' }: FastifyRateLimitStoreOptions = {},
): new (
  settings: object,
) => FastifyRateLimitStore {
  requirePrefix(prefix)
  return class implements FastifyRateLimitStore {
    readonly #burst = new Burst()
    readonly #settings: Settings
    readonly #prefix: string

    constructor(settings: object) {
      this.#settings = settings
      const { routeInfo } = this.#settings
      this.#prefix = routeInfo === undefined ? prefix : `${prefix}${routeInfo.method}${routeInfo.url}-`
    }

    incr(key: string, callback: Counted, timeWindow = 60_000, max = 0): void {
      const renewal = this.#renewal(timeWindow, max)
      const count = (by: number) => hit(db, this.#prefix + key, by, timeWindow, renewal)
      answer(this.#burst.hit(`${timeWindow} ${max} ${key}`, 1, count), callback)
    }

    read(key: string, callback: Counted): void {
      answer(readHits(db, this.#prefix + key), callback)
    }

    child(route: object): FastifyRateLimitStore {
      return new (this.constructor as new (settings: object) => FastifyRateLimitStore)(route)
    }

    #renewal(timeWindow: number, max: number): Renewal | undefined {
      if (this.#settings.continueExceeding) return (count) => (count > max ? timeWindow : undefined)
      if (this.#settings.exponentialBackoff)
        return (count) => (count > max ? timeWindow * 2 ** (count - max - 1) : undefined)
      return undefined
    }
  }
}

function answer(hits: Promise<Hits | undefined>, callback: Counted): void {
  const answers = hits.then((found) => ({ current: found?.count ?? 0, ttl: found?.leftMs ?? 0 }))
  callBack(answers, (error, result) => callback(error as Error | null, result))
}
