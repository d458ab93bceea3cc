import { CLAIM_LIMIT_MAX, CLAIM_WAIT_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN } from '../../limits.js'
import type { Notification } from '../../observers/rules/observers-api.js'
import { AS, type As, type Bytes, type Read, readKey, readValue } from '../bytes.js'
import { BOOLEAN, type Kinds, optionsOf, SIGNAL, TEXT, wholeUpTo } from '../options.js'
import { type Ack, TIMEOUT_KINDS, type TimeoutOptions } from '../transaction-options.js'
import type { Change } from './change.js'

/** `timeoutMs` counts in addition to `waitMs`. */
export interface ClaimOptions<A extends As = As> extends TimeoutOptions {
  /** Shown in the state of the observer. Default: a name of this `Db`. */
  readonly worker?: string | undefined
  /** Most keys. Default 1. */
  readonly limit?: number | undefined
  /** How long to wait until a key is ready, in milliseconds. Default 0. */
  readonly waitMs?: number | undefined
  /** Time in milliseconds after which the keys are given to other workers. Default 10 000. */
  readonly leaseMs?: number | undefined
  /** Also reads the values. */
  readonly values?: boolean | undefined
  /** The type in which keys and values are returned. Default `text`. */
  readonly as?: A | undefined
  readonly signal?: AbortSignal | undefined
}

/** A claimed key. It can be passed as one of the `acks` of a transaction. */
export interface Claim<A extends As = 'text'> extends Omit<Change<A>, 'value' | 'old'>, Ack {
  readonly key: Read<A>
  /** With `values`: whether the key exists. undefined when it was locked. */
  readonly found: boolean | undefined
  /** Present with `values`. */
  readonly value: Read<A> | undefined
  /** With `values`, of a key that has expired and is absent: the value that it had, unless the version was collected. */
  readonly old: Read<A> | undefined
}

/** For `extend` and `release`. The other fields of a `Claim` are ignored. */
export interface ClaimName {
  readonly key: Bytes
  readonly fence: number
}

export interface Release extends ClaimName {
  /** Present: the run counts as a failed attempt. */
  readonly error?: string | undefined
  /** Wait in milliseconds before the key is claimed again, instead of the back-off. */
  readonly retryAfterMs?: number | undefined
}

export const claimOptions = optionsOf<ClaimOptions>('claim', {
  worker: TEXT,
  limit: wholeUpTo(1, CLAIM_LIMIT_MAX),
  waitMs: wholeUpTo(0, CLAIM_WAIT_MS_MAX),
  leaseMs: wholeUpTo(LEASE_MS_MIN, LEASE_MS_MAX),
  values: BOOLEAN,
  as: AS,
  signal: SIGNAL,
  ...TIMEOUT_KINDS,
} satisfies Kinds<ClaimOptions>)

export function claimOf<A extends As>(observer: string, notification: Notification, as: A): Claim<A> {
  const { key, fence, commitTs, kind, attempt, found, value, old } = notification
  return {
    observer,
    key: readKey(key, as),
    fence,
    commitTs,
    kind,
    attempt,
    found,
    value: value && readValue(value, as, key),
    old: old && readValue(old, as, key),
  }
}
