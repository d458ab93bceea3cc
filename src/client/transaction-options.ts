import { TIMEOUT_MS_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import type { Bytes } from './bytes.js'
import { COUNT, type Kinds, kind, oneOf, SIGNAL, WAIT_MS, wholeUpTo } from './options.js'

export interface WaitOptions {
  /** Longest wait for the locks of other transactions, in milliseconds. */
  readonly lockWaitMs?: number | undefined
  /** Ends the call, which rejects with the signal's reason. A write may still have taken effect. */
  readonly signal?: AbortSignal | undefined
}

export interface TimeoutOptions {
  /**
   * Time in milliseconds after which the call rejects with `deadline_exceeded`, from 1 to 600 000. A write has a quarter of a
   * second more for the server's answer; then its outcome is unknown (`isUncertain`; of a transaction: `Undetermined`). Default:
   * none.
   */
  readonly timeoutMs?: number | undefined
}

/** One claim of an observer. Results of `db.observers.claim` can be passed as they are. */
export interface Ack {
  /** Name of the observer. */
  readonly observer: string
  readonly key: Bytes
  /** Fence of the claim. */
  readonly fence: Timestamp
}

/** A lease that must be held when a transaction commits. A `Lease` is one. */
export interface LeaseCheck {
  readonly name: string
  readonly fence: Timestamp
  /** When it is aborted, no transaction begins. */
  readonly signal?: AbortSignal | undefined
}

export interface BeginOptions extends WaitOptions {
  /** `optimistic` (default): conflicts show at commit. `pessimistic`: each write first locks its key and waits for it. */
  readonly mode?: 'optimistic' | 'pessimistic' | undefined
  /** Default `snapshot`. `serializable`: the commit fails if a key or range that was read has changed. */
  readonly isolation?: 'snapshot' | 'serializable' | undefined
  /**
   * Claims of observers that the transaction acknowledges when it commits. When another run was first, it is refused with
   * `write_conflict` (`acknowledged` or `superseded`) and not run again.
   */
  readonly acks?: readonly Ack[] | undefined
  /**
   * Consumers of the change feed that advance with this transaction, from `from` to `ts`. When another transaction has
   * acknowledged since, it is refused with `write_conflict` (`acknowledged`) and not run again.
   */
  readonly positions?: readonly Position[] | undefined
  /**
   * Leases that must be held when the transaction commits, for example from `db.lease`. Otherwise it is refused with
   * `precondition_failed` and not run again, and the signal of the lease is aborted.
   */
  readonly leases?: readonly LeaseCheck[] | undefined
}

/** A step of a consumer: from its position `from` to `ts`, at or below which all changes are applied. */
export interface Position {
  readonly consumer: string
  readonly from: Timestamp
  readonly ts: Timestamp
}

export interface TransactionOptions extends BeginOptions, TimeoutOptions {
  /** Further runs of the function after lost races. Default 10. */
  readonly retries?: number | undefined
}

export const WAIT_KINDS: Kinds<WaitOptions> = { lockWaitMs: WAIT_MS, signal: SIGNAL }
export const TIMEOUT_KINDS: Kinds<TimeoutOptions> = { timeoutMs: wholeUpTo(1, TIMEOUT_MS_MAX) }
export const MODE_KINDS: Kinds<Pick<BeginOptions, 'mode' | 'isolation'>> = {
  mode: oneOf('optimistic', 'pessimistic'),
  isolation: oneOf('snapshot', 'serializable'),
}
export const BEGIN_KINDS: Kinds<BeginOptions> = {
  ...WAIT_KINDS,
  ...MODE_KINDS,
  acks: kind('an array of { observer, key, fence }', isAcks),
  positions: kind('an array of { consumer, from, ts }', isPositions),
  leases: kind('an array of leases', isLeases),
}
export const TRANSACTION_KINDS: Kinds<TransactionOptions> = { ...BEGIN_KINDS, ...TIMEOUT_KINDS, retries: COUNT }

function isLeases(value: unknown): boolean {
  return Array.isArray(value) && value.every(isLease)
}

function isLease(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { name, fence } = value as Readonly<Record<string, unknown>>
  return typeof name === 'string' && Number.isSafeInteger(fence) && Number(fence) > 0
}

function isPositions(value: unknown): boolean {
  return Array.isArray(value) && value.every(isPosition)
}

function isPosition(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { consumer, from, ts } = value as Readonly<Record<string, unknown>>
  return typeof consumer === 'string' && Number.isSafeInteger(from) && Number.isSafeInteger(ts)
}

function isAcks(value: unknown): boolean {
  return Array.isArray(value) && value.every(isAck)
}

function isAck(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { observer, key, fence } = value as Readonly<Record<string, unknown>>
  const isKey = typeof key === 'string' || key instanceof Uint8Array
  return typeof observer === 'string' && isKey && Number.isSafeInteger(fence) && Number(fence) > 0
}
