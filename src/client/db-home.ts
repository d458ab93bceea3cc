import type { Coordinator } from '../coordinator/coordinator.js'
import type { Timestamp } from '../timestamp.js'
import type { Autocommit } from './autocommit.js'

/** Where the data of a `Db` is: on a server, or in this process. */
export interface DbHome {
  /** For messages: 'this connection'. */
  readonly name: string
  readonly autocommit: Autocommit
  readonly coordinator: Coordinator
  /** For reads that begin no transaction: it sees all that is acknowledged. */
  readTs(signal: AbortSignal | undefined): Timestamp | Promise<Timestamp>
  /** `Db.close`: no call begins any more. */
  close(): Promise<void>
}
