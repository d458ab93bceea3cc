import type { Coordinator } from '../coordinator/coordinator.js'
import type { Timestamp } from '../timestamp.js'
import type { Autocommit } from './autocommit.js'

/** Runs a call. A database in this process waits for running calls before it closes. */
export type During = <T>(call: () => Promise<T>) => Promise<T>

/** Where the data of a `Db` is: on a server, or in this process. */
export interface DbHome {
  /** For messages: 'this connection'. */
  readonly name: string
  readonly autocommit: Autocommit
  readonly coordinator: Coordinator
  /** Every call of a `Db`, its snapshots and its transactions runs in here. */
  readonly during: During
  /** For reads that begin no transaction: it sees all that is acknowledged. */
  readTs(signal: AbortSignal | undefined): Timestamp | Promise<Timestamp>
  /** `Db.close`: no call of the `Db` itself begins any more. */
  close(): Promise<void>
}
