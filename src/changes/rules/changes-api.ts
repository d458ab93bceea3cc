import type { LateSignal } from '../../event-loop/late-signal.js'
import type { Version } from '../../percolator/api.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type { Timestamp } from '../../timestamp.js'

/** The changes of some keys: the union of `prefixes` and `keys`, or `[start, end)`; by default every key. */
export interface Selection {
  readonly prefixes?: readonly Uint8Array[] | undefined
  readonly keys?: readonly Uint8Array[] | undefined
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}

/** Where a feed begins. */
interface FeedOrigin {
  /** Exclusive. Default: now; with `consumer` its position. */
  readonly sinceTs?: Timestamp | undefined
  /** Name of a consumer, whose range takes the place of the selection. */
  readonly consumer?: string | undefined
}

export interface FeedOptions extends Selection, FeedOrigin {
  /** Leaves values out. */
  readonly keysOnly?: boolean | undefined
  /** Adds the version before each change. */
  readonly oldValues?: boolean | undefined
}

export interface StreamRequest extends FeedOptions {
  /** First the pairs as of some R, then the changes above R. Not with `sinceTs`, unless in `snapshotAfter`. */
  readonly snapshot?: boolean | undefined
  /** Goes on within a snapshot: after this key of the snapshot at `ts`. */
  readonly snapshotAfter?: { readonly ts: Timestamp; readonly key: Uint8Array } | undefined
  /** A `resolved` at least so often. Default 5000. */
  readonly heartbeatMs?: number | undefined
  /** Ends the stream so long after it has caught up. Absent: it goes on. */
  readonly waitMs?: number | undefined
  readonly signal?: LateSignal | undefined
}

export interface PageRequest extends FeedOptions {
  /** Transactions. Those of one commit_ts are never cut. Default 100. */
  readonly limit?: number | undefined
  /** How long to wait for the first transaction. Default 0. */
  readonly waitMs?: number | undefined
  readonly signal?: LateSignal | undefined
}

export interface FeedChange {
  readonly key: Uint8Array
  readonly op: 'put' | 'delete' | 'expire' | 'delete_range'
  readonly value?: Uint8Array | undefined
  /** With `oldValues`: null when there was none. */
  readonly old?: Version | null | undefined
  /** Of `expire`, and of puts that have one and come with their values. */
  readonly expireTs?: Timestamp | undefined
  /** Of `delete_range`. */
  readonly end?: Uint8Array | undefined
}

/** One transaction, or a part of a long one. Keys are in order. */
export interface FeedTxn {
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  readonly changes: readonly FeedChange[]
  /** 0, 1, ... when the transaction comes in parts. */
  readonly part?: number | undefined
  /** True on the last part. */
  readonly isLast?: boolean | undefined
}

export type FeedEvent =
  | ({ readonly type: 'txn' } & FeedTxn)
  /** Everything at or below it has been delivered. */
  | {
      readonly type: 'resolved'
      readonly resolvedTs: Timestamp
      /** In process only: it is below the begin of the stream, which cannot go on from it. */
      readonly isBeforeBegin?: true
    }
  | {
      readonly type: 'pair'
      /** Of the snapshot. */
      readonly ts: Timestamp
      readonly key: Uint8Array
      readonly value?: Uint8Array | undefined
      readonly commitTs: Timestamp
      readonly expireTs?: Timestamp | undefined
    }
  | { readonly type: 'snapshot_end'; readonly ts: Timestamp }

export interface FeedPage {
  readonly txns: readonly FeedTxn[]
  readonly resolvedTs: Timestamp
  /** The `sinceTs` of the next page. */
  readonly nextTs: Timestamp
  /**
   * Given for transactions of one commit_ts that are longer than memory allows: the rest of them, or their further parts, to be read to its
   * end or given up. It returns the timestamps that are valid then.
   */
  readonly rest?: AsyncGenerator<FeedTxn, Pick<FeedPage, 'resolvedTs' | 'nextTs'>> | undefined
}

/** The present version of a key. */
export type KeyState =
  | ({ readonly found: true } & Version)
  /** `commitTs` is that of the deletion, or when it expired; 0 when none is known. */
  | { readonly found: false; readonly commitTs: Timestamp }

export interface WatchRequest {
  readonly key: Uint8Array
  /** The state that the caller has seen: it is not told again. */
  readonly seenTs?: Timestamp | undefined
  readonly signal?: LateSignal | undefined
}

/** The feed, in process or over HTTP. Failures are thrown as `KvError`; `ts_below_safe_point` when changes were collected. */
export interface ChangesApi {
  /**
   * Batches of events, in order; what is ready comes at once. It ends when the signal aborts, and after `waitMs`. An early `return` frees what it holds.
   */
  stream(request: StreamRequest): AsyncGenerator<readonly FeedEvent[], void>
  page(request: PageRequest): Promise<FeedPage>
  /** The present state, then the latest whenever it is another. */
  watch(request: WatchRequest): AsyncGenerator<KeyState, void>
  readonly consumers: ConsumersApi
}

/** Durable positions. An unknown consumer is `not_found`. */
export interface ConsumersApi {
  /** @throws KvError `already_exists` for another range. */
  put(
    name: string,
    registration: ConsumerRegistration,
  ): Promise<{ readonly state: ConsumerState; readonly isNew: boolean }>
  get(name: string): Promise<ConsumerState>
  /** In order of names. */
  list(): Promise<readonly ConsumerState[]>
  remove(name: string): Promise<void>
  /** Everything at or below `ts` is done. The position never falls. */
  ack(name: string, ts: Timestamp): Promise<ConsumerState>
  /** @param sinceTs default: now. */
  reset(name: string, sinceTs?: Timestamp): Promise<ConsumerState>
}

export interface ConsumerRegistration {
  readonly range: GivenRange
  /** Default: now. */
  readonly sinceTs?: Timestamp | undefined
  /** For how long the position holds collection back. Default: a day. */
  readonly holdMs?: number | undefined
}

export interface ConsumerState {
  readonly name: string
  readonly range: GivenRange
  readonly position: Timestamp
  readonly holdMs: number
  readonly lagMs: number
  readonly isLost: boolean
}
