import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Access } from './answers.js'
import { Server } from './server.js'

export interface Session {
  readonly server: Server
  readonly access: Access
  /** Timestamp of all reads; undefined: now. */
  readonly at: number | undefined
  /** No timestamp below it can be read. */
  readonly safePoint: number
}

const SessionContext = createContext<Session>({
  server: new Server(undefined),
  access: { may_write: false },
  at: undefined,
  safePoint: 0,
})

export const SessionProvider = SessionContext.Provider

export function useSession(): Session {
  return useContext(SessionContext)
}
