import type { KeyRange } from '../bytes/key-range.js'
import type { LockInfo } from '../errors/lock-info.js'
import type { Awaitable } from '../event-loop/after.js'
import type { LazySignal } from '../event-loop/lazy-signal.js'
import type { Stages } from '../event-loop/stages.js'
import type { Timestamp } from '../timestamp.js'
import type { MayAccess } from './access.js'
import type { CommitEffects, LeaseGuard } from './commit-effects.js'
import type { Lock } from './lock.js'
import type { WriteType } from './write.js'

/**
 * The Percolator calls, with names and meanings of TiKV's kvproto (`kv_` dropped, `start_version` called `startTs`).
 * Coordinators of transactions use this interface: in process inside the server, over HTTP elsewhere.
 *
 * Every call may be repeated safely. Every failure is thrown as a `KvError` with a code of the contract. A timestamp of
 * 0 in an optional field means "not given".
 */
export interface PercolatorApi {
  /** Calls that end when the signal is aborted. Absent when all calls are short. */
  withSignal?(signal: AbortSignal): PercolatorApi
  tso(count: number): Awaitable<Timestamp>
  now(): Awaitable<Timestamp>
  /** Answers in this turn of the event loop unless it has to wait. */
  get(request: GetRequest): Awaitable<GetAnswer>
  batchGet(request: BatchGetRequest): Promise<PairsAnswer>
  scan(request: ScanRequest): Promise<ScanAnswer>
  prewrite(request: PrewriteRequest): Promise<PrewriteAnswer>
  commit(request: CommitRequest): Promise<CommitAnswer>
  rollback(request: RollbackRequest): Promise<void>
  cleanup(request: CleanupRequest): Promise<void>
  checkTxnStatus(request: CheckTxnStatusRequest): Promise<TxnStatus>
  checkSecondaryLocks(request: CheckSecondaryLocksRequest): Promise<CheckSecondaryLocksAnswer>
  txnHeartBeat(request: TxnHeartBeatRequest): Promise<TxnHeartBeatAnswer>
  acquirePessimisticLock(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer>
  pessimisticRollback(request: PessimisticRollbackRequest): Promise<void>
  validateReads(request: ValidateReadsRequest): Promise<void>
  resolveLock(request: ResolveLockRequest): Promise<ResolveLockAnswer>
  scanLock(request: ScanLockRequest): Promise<ScanLockAnswer>
  mvccGetByKey(request: { readonly key: Uint8Array }): Promise<MvccInfo>
  mvccGetByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }>
  deleteRange(request: { readonly start: Uint8Array; readonly end: Uint8Array }): Promise<void>
}

export interface GetRequest {
  readonly key: Uint8Array
  /** Absent: the latest committed value; the read ignores the primary lock of a transaction without async commit. */
  readonly ts?: Timestamp | undefined
}
export interface Version {
  readonly value: Uint8Array
  readonly commitTs: Timestamp
  readonly expireTs?: Timestamp | undefined
  readonly leaseFence?: Timestamp | undefined
}
export type GetAnswer =
  /** In process only: commit_ts of the Delete that was found, or the timestamp at which the Put expired. */
  { readonly found: false; readonly deletedTs?: Timestamp } | ({ readonly found: true } & Version)

export interface BatchGetRequest {
  readonly keys: readonly Uint8Array[]
  readonly ts?: Timestamp | undefined
  readonly keyOnly?: boolean | undefined
}
/** `value` is absent in a read with `keyOnly`. */
export interface Pair {
  readonly key: Uint8Array
  readonly value?: Uint8Array
  readonly commitTs: Timestamp
  readonly expireTs?: Timestamp | undefined
  readonly leaseFence?: Timestamp | undefined
}
export type ValuedPair = Pair & { readonly value: Uint8Array }
export interface PairsAnswer {
  readonly pairs: readonly Pair[]
}
export interface ScanAnswer extends PairsAnswer {
  readonly isCut?: boolean
}

export type ScanRequest = ScanOptions & (UsersRange | ServersRange)

interface UsersRange extends KeyRange {
  readonly isOfServer?: false | undefined
}

/** In process only: a range of reserved keys, which no other range contains. */
interface ServersRange {
  readonly isOfServer: true
  readonly start: Uint8Array
  readonly end: Uint8Array
}

interface ScanOptions {
  readonly limit: number
  readonly ts: Timestamp
  readonly reverse?: boolean | undefined
  readonly keyOnly?: boolean | undefined
  /** In process only: end with the pair that reaches this many bytes of keys and values. */
  readonly bytesMax?: number | undefined
}

export interface LockingRequest {
  /**
   * In process only: true for the keys that the caller's token covers; absent when it covers all. `keys` must be among them. If a
   * transaction has other keys, the caller may end it only as its primary says; otherwise the call throws `forbidden`.
   */
  readonly mayAccess?: MayAccess | undefined
  readonly stages?: Stages | undefined
}

type MutationOp = 'put' | 'delete' | 'lock' | 'insert' | 'check_not_exists'
type Assertion = 'exist' | 'not_exist'
/**
 * How a pessimistic prewrite treats one key. `do`: it must hold a pessimistic lock. `skip`: it was never locked and needs no
 * check. `constraint`: it was never locked and is checked as in an optimistic transaction.
 */
export type PessimisticAction = 'skip' | 'do' | 'constraint'

export interface PrewriteMutation {
  readonly op: MutationOp
  readonly key: Uint8Array
  readonly value?: Uint8Array | undefined
  /** Put and insert: the version is absent from this timestamp on. 0 or absent: it does not expire. */
  readonly expireTs?: Timestamp | undefined
  /** Put and insert: the end of the lease with this fence deletes the key. `commitEffects.leases` must list it. */
  readonly leaseFence?: Timestamp | undefined
  /** Put: the new version stays attached to the lease of the one that it replaces, if any. Excludes `leaseFence`. */
  readonly keepsLease?: boolean | undefined
  readonly assertion?: Assertion | undefined
  /**
   * In process only, in a commit in one phase: the put is versionstamped, and writes the key that this makes of the commit_ts. `key`
   * is a reserved one, which no other mutation has.
   */
  readonly keyAt?: ((commitTs: Timestamp) => Uint8Array) | undefined
}

export interface PrewriteRequest extends LockingRequest {
  readonly mutations: readonly PrewriteMutation[]
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** Milliseconds. */
  readonly lockTtl: number
  readonly txnSize?: number | undefined
  readonly minCommitTs?: Timestamp | undefined
  readonly maxCommitTs?: Timestamp | undefined
  readonly useAsyncCommit?: boolean | undefined
  readonly secondaries?: readonly Uint8Array[] | undefined
  readonly tryOnePc?: boolean | undefined
  readonly forUpdateTs?: Timestamp | undefined
  readonly pessimisticActions?: readonly PessimisticAction[] | undefined
  /**
   * For each mutation, the for_update_ts at which its lock was granted. A pessimistic lock above it comes from a late copy of the
   * lock request, taken over writes of others, and is refused. TiKV has `for_update_ts_constraints`.
   */
  readonly forUpdateTsMax?: readonly Timestamp[] | undefined
  readonly skipConstraintCheck?: boolean | undefined
  /** Async commit and 1PC: the commit timestamp is above every timestamp that was handed out so far. */
  readonly linearizable?: boolean | undefined
  /** In process only: the first try of the request, so a record or lock at `startTs` belongs to another transaction. */
  readonly isFirst?: boolean | undefined
  /** With `tryOnePc` only: reads to validate at the commit timestamp before the transaction commits. */
  readonly reads?: ReadSet | undefined
  /**
   * With `tryOnePc` only (unless `leasesCheckedAtCommit`), and without `maxCommitTs`. `mutations` may then be empty. The request
   * is refused with `invalid_argument` when it would have to fall back to two phases.
   */
  readonly commitEffects?: CommitEffects | undefined
  /** In process only: depth of the transaction's notifications, when servers share the store. */
  readonly markDepth?: number | undefined
}
export interface PrewriteAnswer {
  readonly minCommitTs?: Timestamp
  readonly onePcCommitTs?: Timestamp
}

export interface CommitRequest extends LockingRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  readonly primary?: Uint8Array | undefined
  /** With the primary: all keys of the transaction, or those that `keys` lacks. For the logs of servers that share the store. */
  readonly txnKeys?: readonly Uint8Array[] | undefined
  readonly markDepth?: number | undefined
}
export interface CommitAnswer {
  /** Commit timestamp on record. It differs from the request's when the transaction was committed before. */
  readonly commitTs: Timestamp
}

export interface RollbackRequest extends LockingRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
}

export interface CleanupRequest extends LockingRequest {
  readonly key: Uint8Array
  readonly startTs: Timestamp
  readonly currentTs: Timestamp
}

export interface CheckTxnStatusRequest extends LockingRequest {
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
  readonly lockTtl: number
  readonly commitTs: Timestamp
  readonly action: TxnStatusAction
  readonly lock?: LockInfo
}

export interface CheckSecondaryLocksRequest extends LockingRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
}
export interface CheckSecondaryLocksAnswer {
  readonly locks: readonly LockInfo[]
  /** 0: none of the keys is committed. */
  readonly commitTs: Timestamp
}

export interface TxnHeartBeatRequest extends LockingRequest {
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  readonly adviseLockTtl: number
  readonly minCommitTs?: Timestamp | undefined
}
export interface TxnHeartBeatAnswer {
  readonly lockTtl: number
}

export interface AcquirePessimisticLockRequest extends LockingRequest {
  readonly keys: readonly Uint8Array[]
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** The lock is refused with `write_conflict` when the key has a version above it. */
  readonly forUpdateTs: Timestamp
  readonly lockTtl: number
  readonly isFirstLock?: boolean | undefined
  /** Milliseconds to wait for other locks. 0 or absent: the server's default; -1: no wait. */
  readonly waitTimeout?: number | undefined
  readonly returnValues?: boolean | undefined
  readonly checkExistence?: boolean | undefined
  /** Needs `returnValues`; a key without value is not locked. */
  readonly lockOnlyIfExists?: boolean | undefined
  readonly insert?: boolean | undefined
  /**
   * `force_lock`, for a single key: locks it even over a newer version, and answers the latest value and `lockedWithConflictTs`.
   * It saves the queue of a hot key its retries. TiKV `PessimisticLockWakeUpMode`.
   */
  readonly wakeUpMode?: 'normal' | 'force_lock' | undefined
  /** The wait also ends with the TTL of the blocking lock, so that the caller can end its transaction. */
  readonly untilExpired?: boolean | undefined
  readonly signal?: LazySignal | undefined
}
export interface PessimisticLockResult {
  /** With `returnValues` or `checkExistence`, or locked with conflict. */
  readonly found?: boolean
  readonly value?: Uint8Array
  /** In process only: commit_ts of the version in `found` and `value`. */
  readonly commitTs?: Timestamp
  readonly expireTs?: Timestamp
  readonly leaseFence?: Timestamp
  /** `force_lock`: commit_ts of the newest version, above the requested `forUpdateTs`. The lock is placed at it. */
  readonly lockedWithConflictTs?: Timestamp
}
export interface AcquirePessimisticLockAnswer {
  readonly results: readonly PessimisticLockResult[]
}

export interface PessimisticRollbackRequest extends LockingRequest {
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
  /** Locks with a higher for_update_ts stay. */
  readonly forUpdateTs: Timestamp
}

export interface ReadSet {
  readonly keys: readonly Uint8Array[]
  readonly ranges: readonly KeyRange[]
}
/** Reads are valid when no other transaction committed to them after `startTs` and up to `commitTs`, or still may. */
export interface ValidateReadsRequest extends ReadSet {
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  /**
   * Leases that must be held at `commitTs`, which the oracle handed out after all prewrites. Throws `precondition_failed`. Stores
   * that commit in one phase check leases in the prewrite and get none here.
   */
  readonly leases?: readonly LeaseGuard[] | undefined
}

/** `commitTs` 0: rolled back. */
export interface DecidedTxn {
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
}
export interface ResolveLockRequest extends LockingRequest {
  readonly txns: readonly DecidedTxn[]
  readonly keys?: readonly Uint8Array[] | undefined
  /** In process only: the primary has decided, so a min_commit_ts of a lock, raised by a confused client, does not count. */
  readonly isDecided?: boolean | undefined
}
export interface ResolveLockAnswer {
  readonly resolved: number
}

export interface ScanLockRequest extends KeyRange {
  readonly maxTs: Timestamp
  readonly limit?: number | undefined
  /** In process only, and without `end`: the locks on reserved keys as well. */
  readonly withReserved?: boolean | undefined
  /** In process only, for a store with the capability `lockCount`: leaves out locks for which it returns false. */
  readonly isWanted?: ((lock: Lock) => boolean) | undefined
}
export interface ScanLockAnswer {
  readonly locks: readonly LockInfo[]
}

export interface MvccGetByStartTsRequest extends KeyRange {
  readonly startTs: Timestamp
}
/** `writes` and `values` are newest first. */
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
  readonly expireTs?: Timestamp
  readonly leaseFence?: Timestamp
  readonly protected?: boolean
  readonly overlappedRollback?: boolean
}
