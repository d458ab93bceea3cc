/** `perkv/session`: docs/sessions.md. */

export { expressSessionStore } from './express-session-store.js'
export { type SessionStore, type SessionStoreOptions, sessionStore } from './session-store.js'
