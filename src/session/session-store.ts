import { callBack } from '../client/call-back.js'
import { deletePrefix } from '../client/delete-prefix.js'
import { durationMs } from '../client/expiry.js'
import type { Db, Duration } from '../client/index.js'
import { requirePrefix } from '../client/require-prefix.js'
import { wholeTtl } from '../client/whole-ttl.js'
import { cookieOf, lifeOf } from './life-of.js'

export interface SessionStoreOptions {
  /** Every key begins with it; the id of the session follows. Default `session/`. */
  readonly prefix?: string | undefined
  /** Life of a session whose cookie ends with the browser, from its last request on. Default `1d`. */
  readonly ttl?: Duration | undefined
}

/** The calls of @fastify/session and express-session. Errors of PerKV go to the callback. */
export interface SessionStore {
  get<S extends object>(id: string, callback: (error: unknown, session?: S | null) => void): void
  set(id: string, session: object, callback?: (error?: unknown) => void): void
  destroy(id: string, callback?: (error?: unknown) => void): void
  /** Puts off the end of a session, without its data. A session that is gone stays so. */
  touch(id: string, session: object, callback?: (error?: unknown) => void): void
  /** Gives the sessions of one moment by their ids. They are in memory all at once. */
  all<S extends object>(callback: (error: unknown, sessions?: Record<string, S>) => void): void
  length(callback: (error: unknown, count?: number) => void): void
  clear(callback?: (error?: unknown) => void): void
}

/** A store for @fastify/session. */
export function sessionStore(db: Db, { prefix = 'session/', ttl = '1d' }: SessionStoreOptions = {}): SessionStore {
  requirePrefix(prefix)
  const defaultMs = durationMs(ttl)
  if (defaultMs === undefined) throw new TypeError("ttl must be milliseconds, or a time such as '1d'")
  const keyOf = (id: string): string => prefix + id
  const ttlOf = (session: object): number => wholeTtl(lifeOf(session) ?? defaultMs)

  async function find<S extends object>(id: string): Promise<S | null> {
    const found = await db.getVersion(keyOf(id))
    return found === undefined ? null : sessionOf(found.value, found.expireAt)
  }
  async function findAll<S extends object>(): Promise<Record<string, S>> {
    const sessions: [string, S][] = []
    for await (const { key, value, expireAt } of db.scan({ prefix }))
      sessions.push([key.slice(prefix.length), sessionOf(value, expireAt)])
    return Object.fromEntries(sessions)
  }
  return {
    get: <S extends object>(id: string, callback: (error: unknown, session?: S | null) => void) =>
      callBack(find<S>(id), callback),
    set: (id, session, callback) =>
      callBack(db.put(keyOf(id), JSON.stringify(session), { ttl: ttlOf(session) }), callback),
    destroy: (id, callback) => callBack(db.delete(keyOf(id)), callback),
    touch: (id, session, callback) => callBack(db.touch(keyOf(id), { ttl: ttlOf(session) }), callback),
    all: <S extends object>(callback: (error: unknown, sessions?: Record<string, S>) => void) =>
      callBack(findAll<S>(), callback),
    length: (callback) => callBack(db.count({ prefix }), callback),
    clear: (callback) => callBack(deletePrefix(db, prefix), callback),
  }
}

/** `touch` leaves the data as they were, so the end of the cookie is that of the key. */
function sessionOf<S extends object>(text: string, expireAt: Date | undefined): S {
  const session: S = JSON.parse(text)
  const cookie = cookieOf(session)
  return cookie.expires ? { ...session, cookie: { ...cookie, expires: expireAt } } : session
}
