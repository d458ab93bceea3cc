import type { LazySignal } from '../../event-loop/lazy-signal.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type { Timestamp } from '../../timestamp.js'
import type { MarkKind } from './cell.js'

/**
 * The calls of observers, in process or over HTTP. Every failure is thrown as a `KvError`; an unknown observer is `not_found`.
 */
export interface ObserversApi {
  /**
   * Registers a range, or replaces the options of an observer of this range. @throws KvError `already_exists` for another range.
   */
  put(name: string, registration: Registration): Promise<{ readonly state: ObserverState; readonly isNew: boolean }>
  get(name: string): Promise<ObserverState>
  /** In order of names. */
  list(): Promise<readonly ObserverState[]>
  remove(name: string): Promise<void>
  claim(name: string, request: ClaimRequest): Promise<Notification[]>
  /** @returns the claims that are lost. */
  extend(name: string, claims: readonly ClaimName[], leaseMs?: number): Promise<ClaimName[]>
  release(
    name: string,
    claims: readonly Release[],
  ): Promise<{ readonly released: number; readonly parked: Uint8Array[] }>
  notify(name: string, keys: readonly Uint8Array[]): Promise<{ readonly notified: number; readonly ts: Timestamp }>
  backfill(name: string): Promise<ObserverState>
  pause(name: string): Promise<ObserverState>
  resume(name: string): Promise<ObserverState>
  /** In order of keys. `next`: the key after which the next page begins; absent at the end. */
  parked(
    name: string,
    page: { readonly limit: number; readonly after?: Uint8Array | undefined },
  ): Promise<{ readonly parked: Parked[]; readonly next?: Uint8Array | undefined }>
  /** @param keys absent: all parked cells. @returns the number of cells that were parked. */
  retry(name: string, keys?: readonly Uint8Array[]): Promise<number>
  skip(name: string, keys: readonly Uint8Array[]): Promise<number>
}

export interface ObserverOptions {
  /** 0: a cell is never parked. Default 16. */
  readonly maxAttempts: number
  /** Default 200. */
  readonly backoffMs: number
  /** Default 60 000. */
  readonly backoffMaxMs: number
  /** 0: any depth. Default 64. */
  readonly maxDepth: number
}

export interface Registration extends Partial<ObserverOptions> {
  readonly range: GivenRange
  /** Also runs the keys that exist already. Default false. */
  readonly backfill?: boolean | undefined
}

export interface ObserverState extends ObserverOptions {
  readonly name: string
  readonly range: GivenRange
  /** Every commit above it is marked. */
  readonly sinceTs: Timestamp
  readonly state: 'running' | 'paused' | 'backfilling'
  /** Number of ready, claimed and delayed cells. */
  readonly pending: number
  readonly pendingIsExact: boolean
  readonly claimed: number
  readonly delayed: number
  readonly parked: number
  /** Age of the oldest change known to be uncovered; 0: none. */
  readonly lagMs: number
  /** Committed runs since the start of the process. */
  readonly acks: number
  /** Refused runs since the start of the process. */
  readonly conflicts: number
  readonly workers: readonly { readonly worker: string; readonly claimed: number; readonly seenAtMs: number }[]
}

export interface ClaimRequest {
  readonly worker: string
  /** Default 1. */
  readonly limit?: number | undefined
  /** How long to wait until a cell is ready. Default 0. */
  readonly waitMs?: number | undefined
  /** Default 10 000. */
  readonly leaseMs?: number | undefined
  readonly values?: boolean | undefined
  /** Ends the wait with an empty answer. */
  readonly signal?: LazySignal | undefined
}

export interface ClaimName {
  readonly key: Uint8Array
  readonly fence: Timestamp
}

export interface Release extends ClaimName {
  /** Present: the run counts as a failed attempt. */
  readonly error?: string | undefined
  readonly retryAfterMs?: number | undefined
}

/** The fence is a timestamp of the oracle at which the run may read. */
export interface Notification extends ClaimName {
  /** changeTs of the notification. */
  readonly commitTs: Timestamp
  readonly kind: MarkKind
  /** Counts from 1. */
  readonly attempt: number
  /** With `values`, as of the fence; absent for a key that was locked. */
  readonly found?: boolean | undefined
  readonly value?: Uint8Array | undefined
  /** With `values`, of an expired key that is absent: the value that it had, unless the version was collected. */
  readonly old?: Uint8Array | undefined
}

export interface Parked {
  readonly key: Uint8Array
  /** commit_ts of the newest change. */
  readonly commitTs: Timestamp
  readonly attempts: number
  /** Error of the last run. */
  readonly error: string
  readonly parkedAtMs: number
}
