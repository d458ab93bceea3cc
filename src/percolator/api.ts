import type { LockType } from './lock.js'
import type { Timestamp } from './timestamp.js'
import type { WriteType } from './write.js'

/**
 * The Percolator calls, named and meant as in TiKV's kvproto (`kv_` dropped, `start_version` called `startTs`). Whoever
 * coordinates transactions speaks this interface: in process inside the server, over HTTP elsewhere.
 *
 * Every call may be repeated safely. Every failure is thrown as a `KvError` with a code of the contract. A timestamp of
 * 0 in an optional field means "not given".
 */
export interface PercolatorApi {
  tso(count: number): Timestamp | Promise<Timestamp>
  get(request: GetRequest): Promise<GetAnswer>
  batchGet(request: BatchGetRequest): Promise<PairsAnswer>
  scan(request: ScanRequest): Promise<ScanAnswer>
  prewrite(request: PrewriteRequest): Promise<PrewriteAnswer>
  commit(request: CommitRequest): Promise<CommitAnswer>
  rollback(request: RollbackRequest): Promise<void>
  cleanup(request: CleanupRequest): Promise<void>
  checkTxnStatus(request: CheckTxnStatusRequest): Promise<TxnStatus>
  checkSecondaryLocks(request: CheckSecondaryLocksRequest): Promise<CheckSecondaryLocksAnswer>
  txnHeartBeat(request: TxnHeartBeatRequest): Promise<TxnHeartBeatAnswer>
  resolveLock(request: ResolveLockRequest): Promise<ResolveLockAnswer>
  scanLock(request: ScanLockRequest): Promise<ScanLockAnswer>
  mvccGetByKey(request: { readonly key: Uint8Array }): Promise<MvccInfo>
  mvccGetByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }>
  deleteRange(request: { readonly start: Uint8Array; readonly end: Uint8Array }): Promise<void>
}

/** A lock as clients see it. `ttl` in milliseconds from the physical part of `startTs`. */
export interface LockInfo {
  readonly key: Uint8Array
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  readonly ttl: number
  readonly type: LockType
  readonly txnSize: number
  readonly forUpdateTs: Timestamp
  readonly minCommitTs: Timestamp
  readonly useAsyncCommit: boolean
  readonly secondaries: readonly Uint8Array[]
}

/** `[start, end)`; an absent bound is open. */
export interface KeyRange {
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}

export interface GetRequest {
  readonly key: Uint8Array
  /** Absent: the latest committed value, passing over the primary lock of a transaction without async commit. */
  readonly ts?: Timestamp | undefined
}
export interface Version {
  readonly value: Uint8Array
  readonly commitTs: Timestamp
}
export type GetAnswer = { readonly found: false } | ({ readonly found: true } & Version)

export interface BatchGetRequest {
  readonly keys: readonly Uint8Array[]
  readonly ts?: Timestamp | undefined
}
/** `value` is absent in a scan with `keyOnly`. */
export interface Pair {
  readonly key: Uint8Array
  readonly value?: Uint8Array
  readonly commitTs: Timestamp
}
export interface PairsAnswer {
  readonly pairs: readonly Pair[]
}
export interface ScanAnswer extends PairsAnswer {
  /** True when `bytesMax` ended the scan; there may be more pairs in the range. */
  readonly isCut?: boolean
}

export interface ScanRequest extends KeyRange {
  readonly limit: number
  readonly ts: Timestamp
  readonly reverse?: boolean | undefined
  readonly keyOnly?: boolean | undefined
  /** In process only: end with the pair that reaches this many bytes of keys and values. */
  readonly bytesMax?: number | undefined
}

export type MutationOp = 'put' | 'delete' | 'lock' | 'insert' | 'check_not_exists'
export type Assertion = 'exist' | 'not_exist'
/**
 * How a pessimistic prewrite treats one key: `do`: it must hold a pessimistic lock; `skip`: it was never locked and
 * needs no check; `constraint`: it was never locked and is checked as in an optimistic transaction.
 */
export type PessimisticAction = 'skip' | 'do' | 'constraint'

export interface PrewriteMutation {
  readonly op: MutationOp
  readonly key: Uint8Array
  /** For put and insert. */
  readonly value?: Uint8Array | undefined
  readonly assertion?: Assertion | undefined
}

export interface PrewriteRequest {
  readonly mutations: readonly PrewriteMutation[]
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** Milliseconds. */
  readonly lockTtl: number
  readonly txnSize?: number | undefined
  readonly minCommitTs?: Timestamp | undefined
  /** Async commit and 1PC: above this, the request falls back to plain two-phase commit. */
  readonly maxCommitTs?: Timestamp | undefined
  readonly useAsyncCommit?: boolean | undefined
  readonly secondaries?: readonly Uint8Array[] | undefined
  readonly tryOnePc?: boolean | undefined
  readonly forUpdateTs?: Timestamp | undefined
  readonly pessimisticActions?: readonly PessimisticAction[] | undefined
  readonly skipConstraintCheck?: boolean | undefined
}
export interface PrewriteAnswer {
  readonly minCommitTs?: Timestamp
  readonly onePcCommitTs?: Timestamp
}

export interface CommitRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  readonly primary?: Uint8Array | undefined
}
export interface CommitAnswer {
  /** The one on record, when the transaction was committed before with another. */
  readonly commitTs: Timestamp
}

export interface RollbackRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
}

export interface CleanupRequest {
  readonly key: Uint8Array
  readonly startTs: Timestamp
  /** 0: whatever the lock's age. */
  readonly currentTs: Timestamp
}

export interface CheckTxnStatusRequest {
  readonly primary: Uint8Array
  readonly lockTs: Timestamp
  readonly callerStartTs: Timestamp
  readonly currentTs: Timestamp
  readonly rollbackIfNotExist?: boolean | undefined
  readonly forceSyncCommit?: boolean | undefined
  readonly resolvingPessimisticLock?: boolean | undefined
  readonly verifyIsPrimary?: boolean | undefined
}
export type TxnStatusAction =
  | 'no_action'
  | 'ttl_expire_rollback'
  | 'lock_not_exist_rollback'
  | 'min_commit_ts_pushed'
  | 'ttl_expire_pessimistic_rollback'
  | 'lock_not_exist_do_nothing'
export interface TxnStatus {
  readonly status: 'locked' | 'committed' | 'rolled_back'
  /** Milliseconds; 0 unless locked. */
  readonly lockTtl: number
  /** 0 unless committed. */
  readonly commitTs: Timestamp
  readonly action: TxnStatusAction
  /** Present when locked. */
  readonly lock?: LockInfo
}

export interface CheckSecondaryLocksRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
}
export interface CheckSecondaryLocksAnswer {
  readonly locks: readonly LockInfo[]
  /** 0: none of the keys is committed. */
  readonly commitTs: Timestamp
}

export interface TxnHeartBeatRequest {
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** Milliseconds. */
  readonly adviseLockTtl: number
  readonly minCommitTs?: Timestamp | undefined
}
export interface TxnHeartBeatAnswer {
  readonly lockTtl: number
}

/** A decided transaction. `commitTs: 0`: rolled back. */
export interface DecidedTxn {
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
}
export interface ResolveLockRequest {
  readonly txns: readonly DecidedTxn[]
  /** Only with a single transaction; absent: every key that it still locks. */
  readonly keys?: readonly Uint8Array[] | undefined
  /** In process only: the primary says so, and a lock's min_commit_ts (raised by a confused client) doesn't count. */
  readonly isDecided?: boolean | undefined
}
export interface ResolveLockAnswer {
  /** Locks removed. */
  readonly resolved: number
}

export interface ScanLockRequest extends KeyRange {
  readonly maxTs: Timestamp
  readonly limit?: number | undefined
}
export interface ScanLockAnswer {
  readonly locks: readonly LockInfo[]
}

export interface MvccGetByStartTsRequest extends KeyRange {
  readonly startTs: Timestamp
}
/** Everything that is stored of one key; `writes` and `values` newest first. */
export interface MvccInfo {
  readonly lock: LockInfo | null
  readonly writes: readonly MvccWrite[]
  readonly values: readonly { readonly startTs: Timestamp; readonly value: Uint8Array }[]
}
export interface MvccWrite {
  readonly type: WriteType
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  readonly shortValue?: Uint8Array
  readonly protected?: boolean
  readonly overlappedRollback?: boolean
}
