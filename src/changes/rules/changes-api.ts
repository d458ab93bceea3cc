import type { LazySignal } from '../../event-loop/lazy-signal.js'
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

interface FeedOrigin {
  /** Exclusive. Default: now; with `consumer` its position. */
  readonly sinceTs?: Timestamp | undefined
  /** Name of a consumer, whose range replaces the selection. */
  readonly consumer?: string | undefined
}

export interface FeedOptions extends Selection, FeedOrigin {
  /** Leaves values out. */
  readonly keysOnly?: boolean | undefined
  /** Adds the version before each change. */
  readonly oldValues?: boolean | undefined
}

export interface StreamRequest extends FeedOptions {
  /** Delivers the pairs as of some timestamp R first, then the changes above R. Not with `sinceTs`, unless in `snapshotAfter`. */
  readonly snapshot?: boolean | undefined
  /** Resumes within a snapshot: after this key of the snapshot at `ts`. */
  readonly snapshotAfter?: { readonly ts: Timestamp; readonly key: Uint8Array } | undefined
  /** Longest interval between two `resolved` events. Default 5000. */
  readonly heartbeatMs?: number | undefined
  /** Ends the stream this long after it has caught up. Absent: it has no end. */
  readonly waitMs?: number | undefined
  readonly signal?: LazySignal | undefined
}

export interface PageRequest extends FeedOptions {
  /** In transactions. Those of one commit_ts are never split. Default 100. */
  readonly limit?: number | undefined
  /** How long to wait for the first transaction. Default 0. */
  readonly waitMs?: number | undefined
  readonly signal?: LazySignal | undefined
}

export interface FeedChange {
  readonly key: Uint8Array
  readonly op: 'put' | 'delete' | 'expire' | 'delete_range'
  readonly value?: Uint8Array | undefined
  /** With `oldValues`: null when there was none. */
  readonly old?: Version | null | undefined
  /** On `expire`, and on puts with an expiry that come with their values. */
  readonly expireTs?: Timestamp | undefined
  /** On `delete_range`. */
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
      /** In process only: the timestamp is below the begin of the stream, which cannot be resumed from it. */
      readonly isBeforeBegin?: true
    }
  | {
      readonly type: 'pair'
      /** Timestamp of the snapshot. */
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
  /** `sinceTs` of the next page. */
  readonly nextTs: Timestamp
  /**
   * Present when transactions of one commit_ts are longer than memory allows: the remaining transactions or parts. The caller
   * must read it to its end or return it. Its return value has the timestamps that are valid then.
   */
  readonly rest?: AsyncGenerator<FeedTxn, Pick<FeedPage, 'resolvedTs' | 'nextTs'>> | undefined
}

export type KeyState =
  | ({ readonly found: true } & Version)
  /** `commitTs` is that of the deletion, or of the expiry; 0 when none is known. */
  | { readonly found: false; readonly commitTs: Timestamp }

export interface WatchRequest {
  readonly key: Uint8Array
  /** A state at this timestamp is known to the caller and not delivered. */
  readonly seenTs?: Timestamp | undefined
  readonly signal?: LazySignal | undefined
}

/** The feed, in process or over HTTP. Failures are thrown as `KvError`; `ts_below_safe_point` when changes were collected. */
export interface ChangesApi {
  /**
   * Yields batches of events, in order, as soon as they are ready. It ends when the signal aborts, and after `waitMs`. An early
   * `return` frees its resources.
   */
  stream(request: StreamRequest): AsyncGenerator<readonly FeedEvent[], void>
  page(request: PageRequest): Promise<FeedPage>
  /** Yields the present state, then the latest one whenever it has changed. */
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
  /** Acknowledges everything at or below `ts`. The position never falls. */
  ack(name: string, ts: Timestamp): Promise<ConsumerState>
  /** @param sinceTs default: now. */
  reset(name: string, sinceTs?: Timestamp): Promise<ConsumerState>
}

export interface ConsumerRegistration {
  readonly range: GivenRange
  /** Default: now. */
  readonly sinceTs?: Timestamp | undefined
  /** Longest time for which the position holds collection back. Default: a day. */
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
