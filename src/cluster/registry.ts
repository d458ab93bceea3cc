import type { Timestamp } from '../timestamp.js'

export interface ServerState {
  readonly url: string
  /** The oldest snapshot that must stay readable for this server's transactions, pins and streams. */
  readonly oldest: Timestamp
}

export interface Registry {
  /** False when this process has the store to itself. */
  readonly isShared: boolean
  publish(state: ServerState): Promise<void>
  /** The oldest snapshot that another server still reads; `TIMESTAMP_MAX` when there is none. */
  oldest(): Promise<Timestamp>
  /** URL of the server that has this id in the names of its transactions; undefined when that server is gone. */
  urlOf(id: string): Promise<string | undefined>
  /**
   * Runs `body` on at most one server at a time.
   * @param body its signal is aborted when the other servers consider this one dead and may start the job themselves.
   * @returns undefined when another server runs the job.
   */
  lead<T>(job: 'gc', body: (signal: AbortSignal) => Promise<T>): Promise<T | undefined>
}
