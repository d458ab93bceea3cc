/** `perkv/client`: docs/client.md. */
export { type ErrorCode, type ErrorFields, isKvError, isRetryable, KvError } from '../errors/kv-error.js'
export { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
export type { As, Bytes, Read } from './bytes.js'
export { ConnectionError } from './connection-error.js'
export {
  type BeginOptions,
  type ConnectOptions,
  connect,
  type Db,
  type DeleteOptions,
  type PutOptions,
  type ReadOptions,
  type TransactionOptions,
  type WaitOptions,
  type Written,
} from './db.js'
export type { Fetch, Token } from './http-transport.js'
export type { RangeOptions } from './key-range.js'
export type { ReadAt } from './read-at.js'
export type { ScanOptions, ScanPair } from './scan.js'
export { ServerError } from './server-error.js'
export type { Snapshot, SnapshotReadOptions, Versioned } from './snapshot.js'
export type { OpenTxn, Txn, TxnReadOptions } from './txn.js'
export { isUncertain } from './uncertain.js'
export { Undetermined } from './undetermined.js'
