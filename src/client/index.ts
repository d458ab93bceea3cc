/** `perkv/client`: docs/client.md. */

export { isUncertain } from '../coordinator/uncertain.js'
export { Undetermined } from '../coordinator/undetermined.js'
export { isKvError, isRetryable, KvError } from '../errors/kv-error.js'
export type { ErrorCode, ErrorFields } from '../errors/registry.js'
export { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
export type { Counted } from './autocommit.js'
export type { As, Bytes, Read } from './bytes.js'
export type { ChangedKey, ChangedTxn, DeletedKey, DeletedRange, PutKey } from './changes/changed-txn.js'
export type { ChangesOptions } from './changes/changes-options.js'
export type { ConsumerOptions, ConsumerState, Consumers } from './changes/consumers.js'
export type { Watched, WatchOptions } from './changes/watch.js'
export type { Db, DeleteOptions, PutOptions, ReadOptions, Written } from './db.js'
export type { Duration, Expiring, ExpiryOptions, TouchOptions } from './expiry.js'
export { type ConnectOptions, connect } from './http/connect.js'
export type { AtomicAnswer, AtomicOptions, Connection, Lock, LocksOptions, Records } from './http/connection.js'
export { ConnectionError } from './http/connection-error.js'
export type { Fetch } from './http/fetch-sender.js'
export type { Token } from './http/http-transport.js'
export type { Check, OneShot, Op } from './http/one-shot.js'
export { ServerError } from './http/server-error.js'
export type { ServerStatus } from './http/server-status.js'
export type { RangeOptions } from './key-range.js'
export type { Lease } from './leases/lease.js'
export type { LeaseInfo, LeaseOptions } from './leases/lease-options.js'
export type { Leases } from './leases/leases.js'
export type { Change } from './observers/change.js'
export type { Claim, ClaimName, ClaimOptions, Release } from './observers/claim.js'
export type { ObserveBatch, ObserveOne, ObserveOptions } from './observers/observe-options.js'
export type { ObserverState, ParkedKey } from './observers/observer-state.js'
export type { Observers } from './observers/observers.js'
export type { RegistrationOptions } from './observers/registration-options.js'
export type { ReadAt } from './read-at.js'
export type { ScanOptions, ScanPair } from './scan.js'
export type { Snapshot, SnapshotReadOptions, Versioned } from './snapshot.js'
export type {
  Ack,
  BeginOptions,
  LeaseCheck,
  Position,
  TimeoutOptions,
  TransactionOptions,
  WaitOptions,
} from './transaction-options.js'
export type { DeleteRangeOptions, OpenTxn, Txn, TxnReadOptions } from './txn.js'
