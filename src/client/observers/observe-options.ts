import { ACKS_MAX, LEASE_MS_MAX, LEASE_MS_MIN } from '../../limits.js'
import { AS, type As } from '../bytes.js'
import { COUNT, type Kinds, kind, optionsOf, SIGNAL, TEXT, WAIT_MS, wholeUpTo } from '../options.js'
import { MODE_KINDS, TIMEOUT_KINDS, type TimeoutOptions, type TransactionOptions } from '../transaction-options.js'
import type { Txn } from '../txn.js'
import type { Change } from './change.js'
import { REGISTRATION_KINDS, type RegistrationOptions } from './registration-options.js'

/** Changes of shared data must go through `txn`: everything else may happen more than once per change. */
export type ObserveOne<A extends As> = (txn: Txn, change: Change<A>) => unknown
export type ObserveBatch<A extends As> = (txn: Txn, changes: readonly Change<A>[]) => unknown

/** Registration options that are left out keep their values when the observer exists. Then `backfill` does nothing. */
export interface ObserveOptions<A extends As = As>
  extends RegistrationOptions,
    Pick<TransactionOptions, 'mode' | 'isolation' | 'lockWaitMs' | 'retries'>,
    TimeoutOptions {
  /** Transactions that run at once. Default 4. */
  readonly concurrency?: number | undefined
  /**
   * Most changes per transaction. When it is set, the function gets a list of changes. After a failure they are run one by one,
   * as lists of one.
   */
  readonly batch?: number | undefined
  /** Time in milliseconds after which the keys of a dead worker are given to others. Default 30 000. */
  readonly leaseMs?: number | undefined
  /** Shown in the state of the observer. Default: a new name per call. */
  readonly worker?: string | undefined
  /** The type in which keys and values are given. Default `text`. */
  readonly as?: A | undefined
  /** Stops observing. */
  readonly signal?: AbortSignal | undefined
  /**
   * Called for each failed run, with its change, and when a server is away. An error that it throws ends `observe`, which
   * rejects with it. Default: `console.error`.
   */
  readonly onError?: ((error: unknown, change: Change<A> | undefined) => void) | undefined
}

/** Bounds what one worker holds; more would not make it faster. */
const CONCURRENCY_MAX = 1000

export const observeOptions = optionsOf<ObserveOptions>('observe', {
  ...MODE_KINDS,
  ...REGISTRATION_KINDS,
  ...TIMEOUT_KINDS,
  concurrency: wholeUpTo(1, CONCURRENCY_MAX),
  batch: wholeUpTo(1, ACKS_MAX),
  leaseMs: wholeUpTo(LEASE_MS_MIN, LEASE_MS_MAX),
  lockWaitMs: WAIT_MS,
  retries: COUNT,
  worker: TEXT,
  as: AS,
  signal: SIGNAL,
  onError: kind('a function', (value) => typeof value === 'function'),
} satisfies Kinds<ObserveOptions>)

export const CONCURRENCY_DEFAULT = 4
export const LEASE_MS_DEFAULT = 30_000
