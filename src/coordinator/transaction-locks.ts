import { keyText } from '../bytes/key-text.js'
import { isKvError, KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import { eitherSignal, type LazySignal, signalOf } from '../event-loop/lazy-signal.js'
import type { PercolatorApi, PessimisticLockResult } from '../percolator/api.js'
import { lockWaitTimeout } from '../percolator/errors.js'
import { type VersionEnd, withEnd } from '../percolator/version-end.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { Heartbeat } from './heartbeat.js'
import { inParts } from './in-parts.js'
import type { Resolver } from './lock-resolver.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'
import { isUncertain } from './uncertain.js'

/** `commitTs` is present if the server sent it. */
export interface LockedVersion extends VersionEnd {
  readonly value: Uint8Array
  readonly commitTs?: Timestamp | undefined
}

export interface LockOptions {
  readonly lockWaitMs: number
  readonly returnValues?: boolean
  readonly signal?: LazySignal | undefined
}

interface LockedKey {
  readonly key: Uint8Array
  /** False until an answer confirms the lock; the server may hold it anyway. */
  readonly isHeld: boolean
  /** Upper bound of the lock's for_update_ts. */
  readonly grantedAt: Timestamp
}

const NOT_HELD = { isHeld: false, grantedAt: 0 } as const

export interface LockOwner {
  /** `api` bound to the transaction's signal. Only for calls that may be interrupted at any time. */
  readonly waiting: PercolatorApi
  readonly api: PercolatorApi
  readonly resolver: Resolver
  readonly startTs: Timestamp
  readonly startedAt: number
  readonly heartbeatMaxMs: number
  readonly signal: AbortSignal | undefined
}

/** Keeps a body below 32 MiB: a key has up to 4 KiB. */
const KEYS_PER_REQUEST = 1000
const PARALLEL_MAX = 16
/** Pause between requests for a lock whose TTL is over while its transaction lives. */
const ASK_AGAIN_MS = 1000

export class TransactionLocks {
  readonly #owner: LockOwner
  readonly #locked = new Map<string, LockedKey>()
  #primary: Uint8Array | undefined
  #forUpdateTs: Timestamp
  #heartbeat: Heartbeat | undefined
  /** The latest lock request. Locks are taken one after another, because the first one decides the primary. */
  #last: Promise<unknown> = Promise.resolve()
  #isOver = false

  constructor(owner: LockOwner) {
    this.#owner = owner
    this.#forUpdateTs = owner.startTs
  }

  get primary(): Uint8Array | undefined {
    return this.#primary
  }
  /** Upper bound of the for_update_ts of every lock. */
  get forUpdateTs(): Timestamp {
    return this.#forUpdateTs
  }
  get size(): number {
    return this.#locked.size
  }
  /** Keys of the confirmed locks. */
  get keys(): Uint8Array[] {
    return [...this.#locked.values()].filter(({ isHeld }) => isHeld).map(({ key }) => key)
  }

  grantedAt(key: Uint8Array): Timestamp {
    return this.#locked.get(keyText(key))?.grantedAt ?? 0
  }

  /**
   * Locks a key at its latest version. Waits while another transaction holds its lock.
   * @returns that version, if `returnValues` is set.
   */
  lock(key: Uint8Array, options: LockOptions): Promise<LockedVersion | undefined> {
    const locked = this.#last.then(async () => {
      const text = keyText(key)
      const held = this.#locked.get(text)
      if (!held?.isHeld) return this.#acquire(text, key, options)
      // The commit itself detects a lost lock. A program that reads again must learn of it now.
      return options.returnValues === true ? this.#again(held, true) : undefined
    })
    this.#last = locked.catch(() => {})
    return locked
  }

  async #acquire(text: string, key: Uint8Array, options: LockOptions): Promise<LockedVersion | undefined> {
    const { waiting, resolver, startTs } = this.#owner
    const { lockWaitMs, returnValues = false } = options
    const signal = eitherSignal(this.#owner.signal, options.signal)
    const deadline = performance.now() + lockWaitMs
    const isNew = !this.#locked.has(text)
    if (isNew) this.#locked.set(text, { key, ...NOT_HELD })
    /** The TTL of the lock in the way is over, but not that of its primary. */
    let isAlive = false
    for (let isLastTry = false; ; ) {
      this.#owner.signal?.throwIfAborted()
      const sentAt = performance.now()
      const left = Math.ceil(deadline - sentAt)
      try {
        const { results } = await waiting.acquirePessimisticLock({
          keys: [key],
          primary: this.#primary ?? key,
          startTs,
          forUpdateTs: this.#forUpdateTs,
          lockTtl: this.#lockTtl,
          isFirstLock: this.#primary === undefined,
          waitTimeout: left <= 0 || isLastTry ? -1 : isAlive ? Math.min(left, ASK_AGAIN_MS) : left,
          untilExpired: !isAlive,
          returnValues,
          wakeUpMode: 'force_lock',
          signal,
        })
        const { lockedWithConflictTs = 0 } = results[0] ?? {}
        this.#primary ??= key
        const grantedAt = Math.max(this.#forUpdateTs, lockedWithConflictTs)
        this.#forUpdateTs = grantedAt
        this.#keepAlive(this.#primary, sentAt)
        this.#locked.set(text, { key, isHeld: true, grantedAt })
        return versionOf(results[0])
      } catch (error) {
        const isWait = isKvError(error, 'lock_wait_timeout') || isKvError(error, 'key_locked')
        const lock = isWait ? error.fields.lock : undefined
        if (lock === undefined) {
          // An aborted signal ends the call, but the server may still grant the lock.
          if (isNew && !isUncertain(error) && !signalOf(signal)?.aborted) this.#locked.delete(text)
          throw error
        }
        const currentTs = await waiting.now()
        const expiresInMs = physicalMs(lock.startTs) + lock.ttl - physicalMs(currentTs)
        const isOver = performance.now() >= deadline
        if (isLastTry || (isOver && expiresInMs >= 0)) {
          if (isNew) this.#locked.delete(text)
          throw isKvError(error, 'lock_wait_timeout') ? error : lockWaitTimeout(key, lock, currentTs)
        }
        isLastTry = isOver
        isAlive = expiresInMs < 0 && !(await resolver.resolve([lock], currentTs))
      }
    }
  }

  /** Milliseconds from `start_ts` to the expiry of a lock granted now. */
  get #lockTtl(): number {
    return Math.ceil(performance.now() - this.#owner.startedAt) + MANAGED_LOCK_TTL_MS
  }

  #keepAlive(primary: Uint8Array, sentAt: number): void {
    if (this.#isOver) return // The lock was granted after the end, and `release` is about to remove it.
    const { api, startTs, startedAt, heartbeatMaxMs: ageMaxMs } = this.#owner
    const options = { startedAt, ttlMs: MANAGED_LOCK_TTL_MS, ageMaxMs, sentAt }
    this.#heartbeat ??= new Heartbeat(api, { primary, startTs }, options)
  }

  /**
   * Asks again for a granted lock, which changes nothing while it is held. A lost lock over a key that nobody has
   * written since is taken again, which no program can notice.
   * @throws KvError `pessimistic_lock_not_found` when another transaction has locked or written the key since.
   */
  async #again({ key, grantedAt }: LockedKey, returnValues: boolean): Promise<LockedVersion | undefined> {
    const { waiting, startTs } = this.#owner
    const lost = (cause?: Error): KvError => {
      const detail = `the transaction at ${startTs} has lost its lock on ${printKey(key)}`
      return new KvError('pessimistic_lock_not_found', detail, { key, startTs }, { cause })
    }
    const { results } = await waiting
      .acquirePessimisticLock({
        keys: [key],
        primary: this.#primary ?? key,
        startTs,
        forUpdateTs: grantedAt,
        lockTtl: this.#lockTtl,
        waitTimeout: -1,
        returnValues,
        wakeUpMode: 'force_lock',
      })
      .catch((error: unknown) => {
        throw isKvError(error, 'key_locked') ? lost(error) : error
      })
    const [result] = results
    if ((result?.lockedWithConflictTs ?? 0) > grantedAt) throw lost()
    return versionOf(result)
  }

  /** @throws KvError `pessimistic_lock_not_found` when another transaction has taken one of the locks since its grant. */
  async requireHeld(): Promise<void> {
    const held = [...this.#locked.values()].filter(({ isHeld }) => isHeld)
    for (const some of inParts(held, PARALLEL_MAX)) await Promise.all(some.map((lock) => this.#again(lock, false)))
  }

  async idle(): Promise<void> {
    await this.#last
  }

  /** After a commit or rollback: releases the locks that no answer confirmed and that were no part of the commit. */
  async end(): Promise<void> {
    this.#stop()
    await this.#giveUpUnconfirmed()
  }

  /** Releases all locks. If this fails, other transactions resolve the locks that are left. */
  async release(): Promise<void> {
    this.#stop()
    await this.#last // Waits for a lock request in flight, whose lock is released too.
    const { api, startTs } = this.#owner
    const release = (keys: readonly Uint8Array[]): Promise<void> =>
      api.pessimisticRollback({ keys, startTs, forUpdateTs: TIMESTAMP_MAX - 1 })
    await Promise.allSettled([...inParts(this.keys, KEYS_PER_REQUEST).map(release), this.#giveUpUnconfirmed()])
  }

  #stop(): void {
    this.#isOver = true
    this.#heartbeat?.stop()
  }

  /**
   * A request without an answer may still arrive. A Rollback record, unlike the removal of a lock, keeps it from locking then.
   */
  async #giveUpUnconfirmed(): Promise<void> {
    const keys = [...this.#locked.values()].filter(({ isHeld }) => !isHeld).map(({ key }) => key)
    const { api, startTs } = this.#owner
    for (const some of inParts(keys, KEYS_PER_REQUEST)) await api.rollback({ keys: some, startTs })
  }
}

function versionOf(result: PessimisticLockResult | undefined): LockedVersion | undefined {
  const { value, commitTs, ...rest } = result ?? {}
  return value && withEnd({ value, commitTs }, rest)
}
