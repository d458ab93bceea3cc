import type {
  GetAnswer,
  GetRequest,
  Pair,
  PercolatorApi,
  PrewriteAnswer,
  PrewriteRequest,
  ScanLockAnswer,
  ScanLockRequest,
} from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import type { AnswerBudget, AnswerLease } from './answer-budget.js'
import type { Beside, SystemRecords } from './system-records.js'

/** The keys of a transaction that are known beforehand, as `keyText`, and names of system records, as `claimOf`; each once in all. */
export interface Claim {
  readonly written: readonly string[]
  /** Only read: others may read them too meanwhile. */
  readonly read: readonly string[]
  /** No other body runs that is alone. For transactions that read ranges. */
  readonly isAlone: boolean
}

/** How a collection gets along with other requests. */
export interface Pace {
  /** Awaited after each step. @param workedMs that the step took. */
  pause(workedMs: number): Promise<void>
  /** Ends it after the step. */
  readonly signal?: AbortSignal | undefined
}

/** Where the pairs of a restore come from. */
export interface RestoreSource {
  /** Two sources of one id hold the same pairs. 32 hex digits. */
  readonly id: string
  /** At or above every commit_ts. */
  readonly ts: Timestamp
}

/** What a restore that is not complete has stored. */
export interface RestoreProgress extends RestoreSource {
  /** Every pair up to here; undefined: none. */
  readonly lastKey: Uint8Array | undefined
  readonly pairs: number
  /** Of keys and values. */
  readonly bytes: number
}

/** The parts of the contract in which stores differ. Shown by `/v1/status`. */
export interface Capabilities {
  /** `tryOnePc` of a prewrite can be granted; otherwise it is an ordinary prewrite, and answers neither timestamp. */
  readonly onePhaseCommit: boolean
  /** The same of `useAsyncCommit`. */
  readonly asyncCommit: boolean
  /** All that a request changes is one atomic write. False: its primary row decides, and readers finish the others. */
  readonly atomicRequests: boolean
  /** How transactions that wait for each other in a circle end: at once, or when their waits run out. */
  readonly deadlocks: 'detected' | 'timeout'
  readonly restore: boolean
  readonly compact: boolean
  readonly lockCount: boolean
}

/** What the server needs of a store beyond the Percolator calls. A store leaves out the optional members that it does not have. */
export interface Store extends PercolatorApi {
  /** The name in `/v1/status`. */
  readonly name: string
  readonly capabilities: Capabilities
  /** Reads below it are refused; 0 before the first collection. */
  readonly safePoint: Timestamp
  /** Locks that stand now, those of requests in flight included. There with the capability of the same name. */
  readonly lockCount?: number
  /** What waits for the disk, the batches being written included. */
  readonly writeQueue?: { readonly batches: number; readonly bytes: number }
  /** Reads that may be long count against it, and throw `overloaded` once it is spent. */
  readonly answers: AnswerBudget
  /** Signs scan cursors; stays the same over restarts. */
  readonly cursorSecret: Uint8Array
  /**
   * False from a failed write until the engine was opened again: writes answer `storage_unavailable` meanwhile, and reads
   * where they have to. Asking has it tried again.
   */
  probe(): boolean
  /** What went wrong, while writes are refused. */
  readonly fault?: string | undefined

  /** The newest timestamp that is not in the future: of the clock, or one that was handed out ahead of it. */
  clock(): Timestamp
  /** The newest timestamp of the clock, for ages. */
  now(): Timestamp
  /** The oldest timestamp of the last `ms` milliseconds, however the clock was set meanwhile. */
  ago(ms: number): Timestamp
  /** Unix milliseconds that nothing but time adds to, over restarts too: for when things end. */
  steadyMs(): number

  /** `tso` for clients: not far ahead of the clock. @throws KvError `overloaded`, after a wait. */
  tsoForClient(count: number): Promise<Timestamp>

  /** For reads that begin no transaction: sees all that is acknowledged, also while writes are refused, and so `tso` may be. */
  readTs(): Timestamp | Promise<Timestamp>

  /** @param lease counts the locks that it finds for a client; absent: they are for the server itself. */
  scanLock(request: ScanLockRequest, lease?: AnswerLease): Promise<ScanLockAnswer>

  /** The answer to a `get` where memory has it, without a promise; undefined: `get` has to say. */
  known?(request: GetRequest): GetAnswer | undefined

  /**
   * @param beside makes system records from the answer that was decided: they are written with the mutations, all or nothing,
   *   also where those turn out to be done already. It may run more than once, in the turn of the event loop that decides;
   *   where it throws, nothing is written.
   */
  prewrite(request: PrewriteRequest, beside?: Beside): Promise<PrewriteAnswer>

  /**
   * Runs `body` while no other request of this process changes any of the keys, or holds any of the names. With one-phase
   * commit, whose calls take the same latches, only reads and the `prewrite` handed in may be called inside; without it,
   * everything. Nobody relies on it for correctness (the protocol's own checks stand): it spares transactions whose keys are
   * known beforehand from losing to each other over and over.
   */
  exclusive?<T>(claim: Claim, body: (prewrite: Store['prewrite']) => Promise<T>): Promise<T>

  /**
   * The newest version of `keys` that a client has committed above every timestamp handed out; 0 when there is none. Inside
   * `exclusive`, for who has to see it, and to commit above it.
   */
  newestAhead(keys: Iterable<Uint8Array>): Promise<Timestamp>
  /** False: there is none of any key. */
  readonly isWrittenAhead: boolean

  /** What the server remembers of itself over restarts. */
  readonly system: SystemRecords

  /**
   * From now on, and over restarts, reads and prewrites below it are refused. It never goes down.
   * @returns the one in force.
   */
  raiseSafePoint(safePoint: Timestamp): Promise<Timestamp>

  /**
   * Raises the safe point and removes what nobody can read from there on, in small steps; then gives the space back where
   * that is worth it. No lock below the safe point must be left.
   * @returns write records removed; those of a part when `pace.signal` ended it.
   */
  collect(safePoint: Timestamp, pace?: Pace): Promise<number>

  /** Rewrites the files of a range of keys without what is deleted and overwritten; absent bounds are open. */
  compact?(range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined }): Promise<void>
  /** Of all its files, about. */
  diskBytes?(): Promise<number>

  /** Set from the first pair of a restore until its last, over restarts; all else answers `storage_unavailable` meanwhile. */
  readonly restoring?: RestoreProgress | undefined

  /**
   * Stores pairs with their commit_ts, ascending by key, in an empty store; or goes on with a restore of the same id, past
   * the pairs that it has. Nothing is changed before the first of them have come. Where `blocks` throws, or the process
   * dies, what was stored stays, and the store is `restoring`. Once it is complete, reads and writes that began before it are
   * refused: the safe point is there.
   * @param isAnew removes what a restore left that was not completed.
   * @throws KvError `precondition_failed` when the store is not empty; what `blocks` throws.
   */
  restore?(
    source: RestoreSource,
    blocks: AsyncIterable<readonly Required<Pair>[]>,
    isAnew: boolean,
  ): Promise<RestoreProgress>

  close(): Promise<void>
}

/** A store that has all that is optional. */
export type CompleteStore = Store & Required<Omit<Store, keyof PercolatorApi>>
