import type { Timestamp } from '../timestamp.js'

/** What a server tells the others that serve the same store. */
export interface ServerState {
  readonly url: string
  /** Of its snapshots that must stay readable: open transactions, pins, streams. */
  readonly oldest: Timestamp
}

/** The servers of one store. */
export interface Registry {
  /** False: this process has the store to itself. */
  readonly isShared: boolean
  publish(state: ServerState): Promise<void>
  /** The oldest snapshot that another server still reads; `TIMESTAMP_MAX` where there is none. */
  oldest(): Promise<Timestamp>
  /** Of the server whose transactions have this id in their names; undefined: it is gone. */
  urlOf(id: string): Promise<string | undefined>
  /**
   * Runs `body` in one server at a time.
   * @param body its signal is aborted when this server is taken for dead, and another one may begin.
   * @returns undefined: another server runs it.
   */
  lead<T>(job: 'gc', body: (signal: AbortSignal) => Promise<T>): Promise<T | undefined>
}
