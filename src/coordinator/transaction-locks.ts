import { keyText } from '../bytes/key-text.js'
import { isKvError } from '../errors/kv-error.js'
import { eitherSignal, type LateSignal } from '../event-loop/late-signal.js'
import type { PercolatorApi } from '../percolator/api.js'
import { lockWaitTimeout } from '../percolator/errors.js'
import { type VersionEnd, withEnd } from '../percolator/version-end.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { Heartbeat } from './heartbeat.js'
import type { Resolver } from './lock-resolver.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'
import { isUncertain } from './uncertain.js'

/** `commitTs` is present if the server sent it. */
export interface LockedVersion extends VersionEnd {
  readonly value: Uint8Array
  readonly commitTs?: Timestamp | undefined
}

export interface LockOptions {
  /** Longest wait in total. */
  readonly lockWaitMs: number
  readonly returnValues?: boolean
  /** Ends the wait; so does the owner's signal. */
  readonly signal?: LateSignal | undefined
}

interface LockedKey {
  readonly key: Uint8Array
  /** False until an answer confirms the lock; the server may hold it anyway. */
  readonly isHeld: boolean
  /** The lock's for_update_ts is at or below it. */
  readonly grantedAt: Timestamp
  /** The key was read: `version` is its version, and undefined means that the key is absent. */
  readonly isRead: boolean
  readonly version: LockedVersion | undefined
}

const NOT_HELD = { isHeld: false, grantedAt: 0, isRead: false, version: undefined } as const

export interface LockOwner {
  /** `api` bound to the transaction's signal. Only for calls that may be interrupted at any time. */
  readonly waiting: PercolatorApi
  readonly api: PercolatorApi
  readonly resolver: Resolver
  readonly startTs: Timestamp
  /** `performance.now()` at the transaction's start. */
  readonly startedAt: number
  readonly heartbeatMaxMs: number
  readonly signal: AbortSignal | undefined
}

/** A wait on the server is cut into slices. Between two slices the lock of a dead client can be resolved. */
const WAIT_SLICE_MS = 1000

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

  /** The first key that was locked. */
  get primary(): Uint8Array | undefined {
    return this.#primary
  }
  /** Upper bound of the for_update_ts of every lock. */
  get forUpdateTs(): Timestamp {
    return this.#forUpdateTs
  }
  /** Number of locks that are held or may be held. */
  get size(): number {
    return this.#locked.size
  }
  /** Keys of the locks that are known to be held. */
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
      if (held?.isHeld && (options.returnValues !== true || held.isRead)) return held.version
      return this.#acquire(text, key, options)
    })
    this.#last = locked.catch(() => {})
    return locked
  }

  async #acquire(text: string, key: Uint8Array, options: LockOptions): Promise<LockedVersion | undefined> {
    const { waiting, resolver, startTs, startedAt } = this.#owner
    const { lockWaitMs, returnValues = false } = options
    const signal = eitherSignal(this.#owner.signal, options.signal)
    const deadline = performance.now() + lockWaitMs
    const isNew = !this.#locked.has(text)
    if (isNew) this.#locked.set(text, { key, ...NOT_HELD })
    let sliceMs = WAIT_SLICE_MS
    for (let isLastTry = false; ; ) {
      this.#owner.signal?.throwIfAborted()
      const left = Math.ceil(deadline - performance.now())
      try {
        const { results } = await waiting.acquirePessimisticLock({
          keys: [key],
          primary: this.#primary ?? key,
          startTs,
          forUpdateTs: this.#forUpdateTs,
          lockTtl: Math.ceil(performance.now() - startedAt) + MANAGED_LOCK_TTL_MS,
          isFirstLock: this.#primary === undefined,
          waitTimeout: left > 0 && !isLastTry ? Math.min(left, sliceMs) : -1,
          returnValues,
          wakeUpMode: 'force_lock',
          signal,
        })
        const { value, commitTs, lockedWithConflictTs = 0, ...rest } = results[0] ?? {}
        this.#primary ??= key
        const grantedAt = Math.max(this.#forUpdateTs, lockedWithConflictTs)
        this.#forUpdateTs = grantedAt
        this.#keepAlive(this.#primary)
        const version = value && withEnd({ value, commitTs }, rest)
        this.#locked.set(text, { key, isHeld: true, grantedAt, isRead: returnValues, version })
        return version
      } catch (error) {
        const isWait = isKvError(error, 'lock_wait_timeout') || isKvError(error, 'key_locked')
        const lock = isWait ? error.fields.lock : undefined
        if (lock === undefined) {
          if (isNew && !isUncertain(error)) this.#locked.delete(text)
          throw error
        }
        const currentTs = await waiting.now()
        const expiresInMs = physicalMs(lock.startTs) + lock.ttl - physicalMs(currentTs)
        const isOver = performance.now() >= deadline
        if (isLastTry || (isOver && expiresInMs >= 0)) {
          if (isNew) this.#locked.delete(text)
          throw isKvError(error, 'lock_wait_timeout') ? error : lockWaitTimeout(key, lock)
        }
        isLastTry = isOver
        if (expiresInMs < 0) await resolver.resolve([lock], currentTs)
        sliceMs = Math.max(WAIT_SLICE_MS, expiresInMs)
      }
    }
  }

  #keepAlive(primary: Uint8Array): void {
    if (this.#isOver) return // The lock was granted after the end, and `release` is about to remove it.
    const { api, startTs, startedAt, heartbeatMaxMs } = this.#owner
    this.#heartbeat ??= new Heartbeat(api, { primary, startTs }, startedAt, heartbeatMaxMs)
  }

  /** Fulfilled when no lock request is in flight. */
  async settled(): Promise<void> {
    await this.#last
  }

  /** After a commit or rollback: releases the locks that no answer confirmed and that were no part of the commit. */
  async end(): Promise<void> {
    this.#stop()
    await this.#giveUp(([, { isHeld }]) => !isHeld)
  }

  /** Releases all locks. If this fails, other transactions resolve the locks that are left. */
  async release(): Promise<void> {
    this.#stop()
    await this.#last // A lock request in flight is released too.
    await this.#giveUp(() => true).catch(() => {})
  }

  #stop(): void {
    this.#isOver = true
    this.#heartbeat?.stop()
  }

  async #giveUp(isWanted: (entry: [string, LockedKey]) => boolean): Promise<void> {
    const keys = [...this.#locked].filter(isWanted).map(([, { key }]) => key)
    const { api, startTs } = this.#owner
    if (keys.length > 0) await api.pessimisticRollback({ keys, startTs, forUpdateTs: TIMESTAMP_MAX - 1 })
  }
}
