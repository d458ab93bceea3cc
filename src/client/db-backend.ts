import type { ChangesApi } from '../changes/rules/changes-api.js'
import type { Coordinator } from '../coordinator/coordinator.js'
import type { LeasesApi } from '../leases/rules/leases-api.js'
import type { ObserversApi } from '../observers/rules/observers-api.js'
import type { Timestamp } from '../timestamp.js'
import type { Autocommit } from './autocommit.js'

/**
 * Runs a call and counts it as in flight until it settles. A database in this process waits for calls in flight before it
 * closes.
 */
export type During = <T>(call: () => Promise<T>) => Promise<T>

/** The implementation behind a `Db`: a connection to a server, or a database in this process. */
export interface DbBackend {
  /** Used in error messages, for example 'this connection'. */
  readonly name: string
  readonly autocommit: Autocommit
  readonly coordinator: Coordinator
  readonly observers: ObserversApi
  readonly changes: Pick<ChangesApi, 'stream' | 'watch' | 'consumers'>
  readonly leases: LeasesApi
  /** Every call of a `Db`, of its snapshots and of its transactions must run inside. */
  readonly during: During
  /** Whether the database cannot be reached, or cannot serve at present, so that the same call may succeed later. */
  isAway(error: unknown): boolean
  /** Returns a timestamp for reads outside of transactions, which sees all acknowledged writes. */
  readTs(signal: AbortSignal | undefined): Timestamp | Promise<Timestamp>
  /** Called by `Db.close`, after which the `Db` itself starts no further call. */
  close(): Promise<void>
}
