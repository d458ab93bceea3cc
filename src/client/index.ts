/** `perkv/client`: docs/client.md. */

export { isUncertain } from '../coordinator/uncertain.js'
export { Undetermined } from '../coordinator/undetermined.js'
export { isKvError, isRetryable, KvError } from '../errors/kv-error.js'
export type { ErrorCode, ErrorFields } from '../errors/registry.js'
export { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
export type { As, Bytes, Read } from './bytes.js'
export type {
  BeginOptions,
  Db,
  DeleteOptions,
  PutOptions,
  ReadOptions,
  TransactionOptions,
  WaitOptions,
  Written,
} from './db.js'
export { type ConnectOptions, connect } from './http/connect.js'
export { ConnectionError } from './http/connection-error.js'
export type { Fetch, Token } from './http/http-transport.js'
export { ServerError } from './http/server-error.js'
export type { RangeOptions } from './key-range.js'
export type { ReadAt } from './read-at.js'
export type { ScanOptions, ScanPair } from './scan.js'
export type { Snapshot, SnapshotReadOptions, Versioned } from './snapshot.js'
export type { OpenTxn, Txn, TxnReadOptions } from './txn.js'
