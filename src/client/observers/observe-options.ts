import { ACKS_MAX, LEASE_MS_MAX, LEASE_MS_MIN } from '../../limits.js'
import { AS, type As } from '../bytes.js'
import { COUNT, type Kinds, kind, optionsOf, SIGNAL, TEXT, WAIT_MS, wholeUpTo } from '../options.js'
import { MODE_KINDS, TIMEOUT_KINDS, type TimeoutOptions, type TransactionOptions } from '../transaction-options.js'
import type { Txn } from '../txn.js'
import type { Change } from './change.js'
import { REGISTRATION_KINDS, type RegistrationOptions } from './registration-options.js'

/** Runs that change shared data must do it through `txn`: everything else may happen more than once per change. */
export type ObserveOne<A extends As> = (txn: Txn, change: Change<A>) => unknown
export type ObserveBatch<A extends As> = (txn: Txn, changes: readonly Change<A>[]) => unknown

/** Options of the registration that are not given stay as they are, where the observer exists. Then `backfill` does nothing. */
export interface ObserveOptions<A extends As = As>
  extends RegistrationOptions,
    Pick<TransactionOptions, 'mode' | 'isolation' | 'lockWaitMs' | 'retries'>,
    TimeoutOptions {
  /** Transactions that run at once. Default 4. */
  readonly concurrency?: number | undefined
  /**
   * Changes per transaction. When it is given, the function gets a list of one to so many changes. After a failure they are run
   * one by one, as lists of one.
   */
  readonly batch?: number | undefined
  /** Time after which the keys of a worker that has died are given to others. Default 30 000. */
  readonly leaseMs?: number | undefined
  /** Shown in the state of the observer. Default: a new name per call. */
  readonly worker?: string | undefined
  /** The type in which keys and values are given. Default `text`. */
  readonly as?: A | undefined
  /** Stops observing. */
  readonly signal?: AbortSignal | undefined
  /**
   * Told of each failed run, with its change, and of a server that is away. What it throws ends `observe`, which rejects with it.
   * Default: `console.error`.
   */
  readonly onError?: ((error: unknown, change: Change<A> | undefined) => void) | undefined
}

/** More of them would not make a worker faster. It bounds what one worker holds. */
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
