import { LEASE_MS_MAX, LEASE_MS_MIN } from '../../limits.js'
import type {
  ClaimName as ApiClaimName,
  Notification as ApiNotification,
  ObserversApi,
} from '../../observers/rules/observers-api.js'
import type { Timestamp } from '../../timestamp.js'
import { AS, type As, type Bytes, type Read, readKey, toKey, toKeys } from '../bytes.js'
import type { RangeOptions } from '../key-range.js'
import { requireName } from '../name.js'
import type { NamedCall } from '../named-calls.js'
import { type Kinds, optionsOf, wholeUpTo } from '../options.js'
import { TIMEOUT_KINDS, type TimeoutOptions } from '../transaction-options.js'
import { type Claim, type ClaimName, type ClaimOptions, claimOf, claimOptions, type Release } from './claim.js'
import { observerRangeOf } from './observer-range.js'
import { type ObserverState, type ParkedKey, parkedOf, stateOf } from './observer-state.js'
import { observerOptionsOf, REGISTRATION_KINDS, type RegistrationOptions } from './registration-options.js'
import { newWorkerName } from './worker-name.js'

interface AsOptions<A extends As> extends TimeoutOptions {
  /** The type in which keys are returned. Default `text`. */
  readonly as?: A | undefined
}

type PutOptions<A extends As = As> = RegistrationOptions & AsOptions<A>

interface ExtendOptions extends TimeoutOptions {
  /** Time in milliseconds from now. Default: that of the claim. */
  readonly leaseMs?: number | undefined
}

const AS_KINDS: Kinds<AsOptions<As>> = { ...TIMEOUT_KINDS, as: AS }
const putOptions = optionsOf<PutOptions>('put of an observer', { ...REGISTRATION_KINDS, ...AS_KINDS })
const readOptions = optionsOf<AsOptions<As>>('a call of observers', AS_KINDS)
const extendOptions = optionsOf<ExtendOptions>('extend', {
  ...TIMEOUT_KINDS,
  leaseMs: wholeUpTo(LEASE_MS_MIN, LEASE_MS_MAX),
})
const plainOptions = optionsOf<TimeoutOptions>('a call of observers', TIMEOUT_KINDS)

/** Parked keys per page. */
const PARKED_PAGE = 100

type Call = NamedCall<ObserversApi>

/** The calls of observers, for programs that do not use `db.observe`. An observer that does not exist is `not_found`. */
export class Observers {
  readonly #call: Call
  readonly #worker = newWorkerName()

  /** @internal */
  constructor(call: Call) {
    this.#call = call
  }

  // ---- Registration

  /**
   * Registers a range: every key of it that is written from now on is given to a worker. An observer that has this range already
   * gets the new options. @throws KvError `already_exists` when it has another range.
   */
  async put<A extends As = 'text'>(
    name: string,
    range: RangeOptions,
    options: PutOptions<A> = {},
  ): Promise<ObserverState<A>> {
    const { as = 'text' as A, backfill, timeoutMs } = putOptions(options)
    requireName('observer', name)
    const registration = { range: observerRangeOf(range), backfill, ...observerOptionsOf(options) }
    return stateOf((await this.#call((api) => api.put(name, registration), { timeoutMs })).state, as)
  }

  async get<A extends As = 'text'>(name: string, options: AsOptions<A> = {}): Promise<ObserverState<A>> {
    const { as = 'text' as A, timeoutMs } = readOptions(options)
    requireName('observer', name)
    return stateOf(await this.#call((api) => api.get(name), { timeoutMs, isRead: true }), as)
  }

  /** In order of names. */
  async list<A extends As = 'text'>(options: AsOptions<A> = {}): Promise<ObserverState<A>[]> {
    const { as = 'text' as A, timeoutMs } = readOptions(options)
    return (await this.#call((api) => api.list(), { timeoutMs, isRead: true })).map((state) => stateOf(state, as))
  }

  async delete(name: string, options: TimeoutOptions = {}): Promise<void> {
    const { timeoutMs } = plainOptions(options)
    requireName('observer', name)
    await this.#call((api) => api.remove(name), { timeoutMs })
  }

  // ---- Claims

  /**
   * Claims keys that have changed. No other worker gets them until the lease ends. A transaction that acknowledges a claim
   * (`acks`) commits only if no other run has covered the change.
   */
  async claim<A extends As = 'text'>(name: string, options: ClaimOptions<A> = {}): Promise<Claim<A>[]> {
    const { as = 'text' as A, signal, worker = this.#worker, timeoutMs, ...request } = claimOptions(options)
    const { waitMs } = request
    requireName('observer', name)
    signal?.throwIfAborted()
    const claimed = await this.#call((api) => api.claim(name, { ...request, worker, signal }), { timeoutMs, waitMs })
    if (claimed.length === 0) signal?.throwIfAborted()
    try {
      return claimed.map((notification) => claimOf(name, notification, as))
    } catch (error) {
      await this.#giveBack(name, claimed)
      throw error
    }
  }

  async #giveBack(name: string, claimed: readonly ApiNotification[]): Promise<void> {
    await this.#call((api) =>
      api.release(
        name,
        claimed.map(({ key, fence }) => ({ key, fence })),
      ),
    ).catch(() => {})
  }

  /** Restarts leases. @returns the claims that are lost. */
  async extend<C extends ClaimName>(name: string, claims: readonly C[], options: ExtendOptions = {}): Promise<C[]> {
    const { leaseMs, timeoutMs } = extendOptions(options)
    requireName('observer', name)
    const lost = await this.#call((api) => api.extend(name, claims.map(claimName), leaseMs), { timeoutMs })
    const fences = new Set(lost.map(({ fence }) => fence)) // Fences of claims are unique.
    return claims.filter(({ fence }) => fences.has(fence))
  }

  /**
   * Gives keys back: at once, or, with `error`, as a failed attempt. Claims that are over are ignored.
   * @returns the keys that are parked now.
   */
  async release<A extends As = 'text'>(
    name: string,
    claims: readonly Release[],
    options: AsOptions<A> = {},
  ): Promise<{ readonly released: number; readonly parked: Read<A>[] }> {
    const { as = 'text' as A, timeoutMs } = readOptions(options)
    requireName('observer', name)
    const releases = claims.map(({ error, retryAfterMs, ...claim }) => ({ ...claimName(claim), error, retryAfterMs }))
    const { released, parked } = await this.#call((api) => api.release(name, releases), { timeoutMs })
    return { released, parked: parked.map((key) => readKey(key, as)) }
  }

  // ---- Keys

  /** Marks keys as changed, without changing them. They must be in the range. */
  async notify(
    name: string,
    ...keys: readonly Bytes[]
  ): Promise<{ readonly notified: number; readonly ts: Timestamp }> {
    requireName('observer', name)
    const asked = toKeys(keys)
    return this.#call((api) => api.notify(name, asked))
  }

  /** Yields the keys whose runs have failed too often, in order. */
  async *parked<A extends As = 'text'>(
    name: string,
    options: AsOptions<A> = {},
  ): AsyncGenerator<ParkedKey<A>, void, undefined> {
    const { as = 'text' as A, timeoutMs } = readOptions(options)
    requireName('observer', name)
    let after: Uint8Array | undefined
    do {
      const page = await this.#call((api) => api.parked(name, { limit: PARKED_PAGE, after }), {
        timeoutMs,
        isRead: true,
      })
      for (const cell of page.parked) yield parkedOf(cell, as)
      after = page.next
    } while (after !== undefined)
  }

  /** Gives parked keys to workers again. @param keys default: all. @returns the number of keys that were parked. */
  async retry(name: string, keys?: readonly Bytes[], options: TimeoutOptions = {}): Promise<number> {
    const { timeoutMs } = plainOptions(options)
    requireName('observer', name)
    const asked = keys && toKeys(keys)
    return this.#call((api) => api.retry(name, asked), { timeoutMs })
  }

  /** Drops the changes of parked keys. @returns the number of keys that were parked. */
  async skip(name: string, keys: readonly Bytes[], options: TimeoutOptions = {}): Promise<number> {
    const { timeoutMs } = plainOptions(options)
    requireName('observer', name)
    const asked = toKeys(keys)
    return this.#call((api) => api.skip(name, asked), { timeoutMs })
  }

  // ---- State

  /** Marks all keys of the range. Resolves when that has begun. */
  async backfill(name: string, options: TimeoutOptions = {}): Promise<void> {
    const { timeoutMs } = plainOptions(options)
    requireName('observer', name)
    await this.#call((api) => api.backfill(name), { timeoutMs })
  }

  /** Gives no more keys to workers. Changes are still marked. */
  async pause(name: string, options: TimeoutOptions = {}): Promise<void> {
    const { timeoutMs } = plainOptions(options)
    requireName('observer', name)
    await this.#call((api) => api.pause(name), { timeoutMs })
  }

  async resume(name: string, options: TimeoutOptions = {}): Promise<void> {
    const { timeoutMs } = plainOptions(options)
    requireName('observer', name)
    await this.#call((api) => api.resume(name), { timeoutMs })
  }
}

function claimName({ key, fence }: ClaimName): ApiClaimName {
  return { key: toKey(key), fence }
}
