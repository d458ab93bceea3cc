import type { Db } from '../client/index.js'
import { type SessionStore, type SessionStoreOptions, sessionStore } from './session-store.js'

/**
 * A store for express-session, which wants its own class below.
 * @param session the package: `import session from 'express-session'`.
 */
export function expressSessionStore<S extends object>(
  session: { readonly Store: abstract new () => S },
  db: Db,
  options?: SessionStoreOptions,
): S & SessionStore {
  const Store = session.Store as new () => S
  return Object.assign(new Store(), sessionStore(db, options))
}
