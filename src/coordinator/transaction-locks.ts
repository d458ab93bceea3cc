import { keyText } from '../bytes/key-text.js'
import { isKvError } from '../errors/kv-error.js'
import { eitherSignal, type LateSignal } from '../event-loop/late-signal.js'
import type { PercolatorApi } from '../percolator/api.js'
import { lockWaitTimeout } from '../percolator/errors.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { Heartbeat } from './heartbeat.js'
import type { Resolver } from './lock-resolver.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'
import { isUncertain } from './uncertain.js'

/** A value as a locking read sees it; `commitTs` where the server tells. */
export interface LockedVersion {
  readonly value: Uint8Array
  readonly commitTs?: Timestamp | undefined
}

export interface LockWish {
  /** Milliseconds, in all. */
  readonly lockWaitMs: number
  readonly returnValues?: boolean
  /** Ends the wait, as the owner's does. */
  readonly signal?: LateSignal | undefined
}

interface LockedKey {
  readonly key: Uint8Array
  /** False while no answer says so: it may be. */
  readonly isHeld: boolean
  /** The lock stands there, or below. */
  readonly grantedAt: Timestamp
  /** Whether it was read: then that is what it is, also where it is absent. */
  readonly isRead: boolean
  readonly version: LockedVersion | undefined
}

const NOT_HELD = { isHeld: false, grantedAt: 0, isRead: false, version: undefined } as const

export interface LockOwner {
  /** Bound to the transaction's signal, for what may be broken off at any time. */
  readonly waiting: PercolatorApi
  readonly api: PercolatorApi
  readonly resolver: Resolver
  readonly startTs: Timestamp
  /** `performance.now()` at the transaction's start. */
  readonly startedAt: number
  readonly heartbeatMaxMs: number
  readonly signal: AbortSignal | undefined
}

/** A wait on the server is cut into pieces: between them, the lock of a dead client is resolved. */
const WAIT_SLICE_MS = 1000

/** The pessimistic locks of one transaction: taking them one after another, keeping them alive, giving them up. */
export class TransactionLocks {
  readonly #owner: LockOwner
  readonly #locked = new Map<string, LockedKey>()
  #primary: Uint8Array | undefined
  #forUpdateTs: Timestamp
  #heartbeat: Heartbeat | undefined
  /** The first lock decides the primary. */
  #last: Promise<unknown> = Promise.resolve()
  #isOver = false

  constructor(owner: LockOwner) {
    this.#owner = owner
    this.#forUpdateTs = owner.startTs
  }

  /** The key that was locked first. */
  get primary(): Uint8Array | undefined {
    return this.#primary
  }
  /** Every lock stands at or below it. */
  get forUpdateTs(): Timestamp {
    return this.#forUpdateTs
  }
  /** Locks that are held, or may be. */
  get size(): number {
    return this.#locked.size
  }
  /** Those known to be held. */
  get keys(): Uint8Array[] {
    return [...this.#locked.values()].filter(({ isHeld }) => isHeld).map(({ key }) => key)
  }

  grantedAt(key: Uint8Array): Timestamp {
    return this.#locked.get(keyText(key))?.grantedAt ?? 0
  }

  /** Locks a key at its latest version, and waits for whoever holds it. @returns that version, where it was asked for. */
  lock(key: Uint8Array, wish: LockWish): Promise<LockedVersion | undefined> {
    const locked = this.#last.then(async () => {
      const text = keyText(key)
      const held = this.#locked.get(text)
      if (held?.isHeld && (wish.returnValues !== true || held.isRead)) return held.version
      return this.#acquire(text, key, wish)
    })
    this.#last = locked.catch(() => {})
    return locked
  }

  async #acquire(text: string, key: Uint8Array, wish: LockWish): Promise<LockedVersion | undefined> {
    const { waiting, resolver, startTs, startedAt } = this.#owner
    const signal = eitherSignal(this.#owner.signal, wish.signal)
    const deadline = performance.now() + wish.lockWaitMs
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
          returnValues: wish.returnValues ?? false,
          wakeUpMode: 'force_lock',
          signal,
        })
        const { value, commitTs, lockedWithConflictTs = 0 } = results[0] ?? {}
        this.#primary ??= key
        const grantedAt = Math.max(this.#forUpdateTs, lockedWithConflictTs)
        this.#forUpdateTs = grantedAt
        this.#keepAlive(this.#primary)
        const version = value && { value, commitTs }
        this.#locked.set(text, { key, isHeld: true, grantedAt, isRead: wish.returnValues ?? false, version })
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
    if (this.#isOver) return // Granted after the end: it is released presently.
    const { api, startTs, startedAt, heartbeatMaxMs } = this.#owner
    this.#heartbeat ??= new Heartbeat(api, { primary, startTs }, startedAt, heartbeatMaxMs)
  }

  /** Fulfilled when no request for a lock is on its way. */
  async settled(): Promise<void> {
    await this.#last
  }

  /** The transaction is committed or rolled back; gives up the locks that were no part of it. */
  async end(): Promise<void> {
    this.#stop()
    await this.#giveUp(([, { isHeld }]) => !isHeld)
  }

  /** Gives up all of them. Those that this fails to release are resolved by whoever meets them. */
  async release(): Promise<void> {
    this.#stop()
    await this.#last // A lock on its way is released too.
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
