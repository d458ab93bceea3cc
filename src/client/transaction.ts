import type { KeyRange, PercolatorApi, PrewriteMutation, ReadSet, Version } from '../percolator/api.js'
import { isKvError, KvError, printKey } from '../percolator/errors.js'
import { afterKey } from '../percolator/key-range.js'
import { keyText } from '../percolator/key-text.js'
import { TIMESTAMP_MAX, type Timestamp } from '../percolator/timestamp.js'
import { type CommitOptions, Committer } from './committer.js'
import { Heartbeat } from './heartbeat.js'
import type { Resolver } from './lock-resolver.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'
import { SnapshotReader } from './snapshot-reader.js'
import { isUncertain } from './uncertain.js'
import { Undetermined } from './undetermined.js'
import { type MergedPair, type MergedScan, type ScanOrder, WriteBuffer } from './write-buffer.js'

export interface TransactionOptions {
  /** `pessimistic`: locks as it writes, and waits for the locks of others. */
  readonly mode: 'optimistic' | 'pessimistic'
  /** `serializable`: what it read is still so when it commits. */
  readonly isolation: 'snapshot' | 'serializable'
  /** How long to wait for other transactions' locks before `key_locked` or `lock_wait_timeout`; calls may differ. */
  readonly lockWaitMs: number
  /** Of keys and values written. */
  readonly bytesMax?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** What a transaction needs of its home. */
export interface TransactionHome {
  readonly api: PercolatorApi
  readonly resolver: Resolver
  readonly commitOptions: CommitOptions
  /** Takes work that nobody waits for. */
  readonly inBackground: (work: Promise<unknown>) => void
}

/** What a read of one key sees: no `commitTs` for the transaction's own write, or where the server doesn't tell. */
export interface MergedVersion {
  readonly value: Uint8Array
  readonly commitTs?: Timestamp | undefined
}

/** A key that the transaction asked a pessimistic lock on. */
interface LockedKey {
  readonly key: Uint8Array
  /** False while no answer says so: it may be. */
  readonly isHeld: boolean
  /** The latest version, for those who read for update. */
  readonly version: MergedVersion | undefined
}

interface LockWish {
  readonly returnValues?: boolean
  readonly lockWaitMs: number | undefined
}

type State =
  | { readonly name: 'open' | 'committing' | 'rolled_back' }
  | { readonly name: 'committed'; readonly commitTs: Timestamp }
  | { readonly name: 'undetermined'; readonly committer: Committer }

/** A wait on the server is cut into pieces of this length: between them, the lock of a dead client can be resolved. */
const WAIT_SLICE_MS = 1000

/**
 * One transaction: snapshot reads at `startTs` with its own writes in them, writes buffered until `commit`.
 *
 * Optimistic: conflicts show at commit. Pessimistic: each write locks its key first, at its latest version, and waits
 * for it in the server's queue; `getForUpdate` locks and reads the latest version. Nothing is ever applied again under a
 * new `startTs`: whoever wants to try again begins a new transaction and runs its program again.
 * @see TiKV client-go `txnkv/transaction/txn.go`.
 */
export class Transaction {
  readonly #home: TransactionHome
  /** Bound to the transaction's signal, for what may be broken off at any time. */
  readonly #api: PercolatorApi
  readonly #options: TransactionOptions
  readonly #startedAt = performance.now()
  readonly #reader: SnapshotReader
  readonly #buffer: WriteBuffer
  /** Pessimistic locks, and those whose fate is not known. */
  readonly #locked = new Map<string, LockedKey>()
  /** Read for update in an optimistic transaction: checked like a write, but written as a Lock record. */
  readonly #readForUpdate = new Map<string, Uint8Array>()
  /** Serializable: what was read of the snapshot. */
  readonly #keysRead = new Map<string, Uint8Array>()
  readonly #rangesRead: KeyRange[] = []
  #prefetched: ReadonlyMap<string, Version | undefined> | undefined
  #primary: Uint8Array | undefined
  #forUpdateTs: Timestamp
  #heartbeat: Heartbeat | undefined
  /** Locks are taken one after another: the first decides the primary. */
  #locking: Promise<unknown> = Promise.resolve()
  #state: State = { name: 'open' }

  constructor(
    home: TransactionHome,
    readonly startTs: Timestamp,
    options: TransactionOptions,
  ) {
    this.#home = home
    this.#options = options
    this.#forUpdateTs = startTs
    this.#buffer = new WriteBuffer(options.bytesMax)
    this.#api = (options.signal && home.api.withSignal?.(options.signal)) ?? home.api
    this.#reader = new SnapshotReader(this.#api, home.resolver, startTs, options)
  }

  get commitTs(): Timestamp | undefined {
    return this.#state.name === 'committed' ? this.#state.commitTs : undefined
  }
  get state(): State['name'] {
    return this.#state.name
  }
  /** Keys written. */
  get writes(): number {
    return this.#buffer.size
  }
  /** Of keys and values written. */
  get bytes(): number {
    return this.#buffer.bytes
  }

  // ---- Reads

  async get(key: Uint8Array, lockWaitMs?: number): Promise<MergedVersion | undefined> {
    this.#requireOpen()
    const own = this.#buffer.get(key)
    if (own !== undefined) return versionOf(own.value)
    this.#recordKey(key)
    const text = this.#prefetched === undefined ? '' : keyText(key)
    if (this.#prefetched?.has(text)) return this.#prefetched.get(text)
    return this.#reader.get(key, lockWaitMs)
  }

  /**
   * Reads keys together of which later calls will want some or all.
   * @param keys each once. @returns what the snapshot has of them, by `keyText`.
   */
  async prefetch(keys: readonly Uint8Array[]): Promise<ReadonlyMap<string, Version | undefined>> {
    for (const key of keys) this.#recordKey(key)
    const prefetched = new Map<string, Version | undefined>(keys.map((key) => [keyText(key), undefined]))
    for (const { key, value, commitTs } of await this.#reader.batchGet(keys))
      if (value !== undefined) prefetched.set(keyText(key), { value, commitTs })
    this.#prefetched = prefetched
    return prefetched
  }

  /** @param keys each once. @returns the pairs that exist, in the order of the keys. */
  async batchGet(keys: readonly Uint8Array[]): Promise<readonly MergedPair[]> {
    this.#requireOpen()
    const own = keys.map((key) => this.#buffer.get(key))
    const others = keys.filter((_, i) => own[i] === undefined)
    for (const key of others) this.#recordKey(key)
    const read = new Map((await this.#reader.batchGet(others)).map((pair) => [keyText(pair.key), pair]))
    return keys.flatMap((key, i): MergedPair[] => {
      const written = own[i]
      if (written !== undefined) return written.value === undefined ? [] : [{ key, value: written.value }]
      const pair = read.get(keyText(key))
      return pair === undefined ? [] : [pair]
    })
  }

  /** @param request `bytesMax`, in process only, ends the scan early; see `MergedScan`. */
  async scan(
    request: ScanOrder & { readonly bytesMax?: number | undefined },
    lockWaitMs?: number,
  ): Promise<MergedScan> {
    this.#requireOpen()
    const { start, end, reverse } = request
    return this.#buffer.mergeScan(request, async (limit) => {
      const isRecorded = this.#options.isolation === 'serializable'
      // Recorded before it is read: a commit that comes in between validates it too.
      const index = isRecorded ? this.#rangesRead.push({ start, end }) - 1 : -1
      const answer = await this.#reader.scan({ ...request, limit }, lockWaitMs)
      const last = answer.pairs.at(-1)?.key
      const isWhole = answer.pairs.length < limit && answer.isCut !== true
      if (isRecorded && !isWhole && last !== undefined)
        this.#rangesRead[index] = reverse ? { start: last, end } : { start, end: afterKey(last) }
      return answer
    })
  }

  /**
   * Reads a key that the transaction is going to base writes on. Pessimistic: locks it, and reads the latest version,
   * which may be newer than the snapshot. Optimistic: reads the snapshot, and a newer version is a conflict at commit.
   */
  async getForUpdate(key: Uint8Array, lockWaitMs?: number): Promise<MergedVersion | undefined> {
    this.#requireOpen()
    if (this.#options.mode === 'optimistic') {
      this.#readForUpdate.set(keyText(key), key)
      return this.get(key, lockWaitMs)
    }
    const own = this.#buffer.get(key)
    if (own !== undefined) return versionOf(own.value)
    return (await this.#lock(key, { returnValues: true, lockWaitMs })).version
  }

  /** Reads a key that is going to be written: the write itself makes a newer version a conflict. */
  getToWrite(key: Uint8Array, lockWaitMs?: number): Promise<MergedVersion | undefined> {
    return this.#options.mode === 'pessimistic' ? this.getForUpdate(key, lockWaitMs) : this.get(key, lockWaitMs)
  }

  // ---- Writes

  async put(key: Uint8Array, value: Uint8Array, lockWaitMs?: number): Promise<void> {
    this.#requireOpen()
    if (this.#options.mode === 'pessimistic') await this.#lock(key, { lockWaitMs })
    this.#buffer.put(key, value)
  }

  async delete(key: Uint8Array, lockWaitMs?: number): Promise<void> {
    this.#requireOpen()
    if (this.#options.mode === 'pessimistic') await this.#lock(key, { lockWaitMs })
    this.#buffer.delete(key)
  }

  /** @throws KvError `already_exists`. */
  async insert(key: Uint8Array, value: Uint8Array, lockWaitMs?: number): Promise<void> {
    const found = await this.getToWrite(key, lockWaitMs)
    if (found !== undefined) throw alreadyExists(key)
    await this.put(key, value)
  }

  /** Runs writes of which either all are kept or, where `body` throws, none. Locks that it took stay. */
  atomically<T>(body: () => Promise<T>): Promise<T> {
    return this.#buffer.atomically(body)
  }

  /** Locks a key at its latest version; waits for whoever holds it. */
  #lock(key: Uint8Array, wanted: LockWish): Promise<LockedKey> {
    const locked = this.#locking.then(async () => {
      this.#requireOpen()
      const text = keyText(key)
      const held = this.#locked.get(text)
      if (held?.isHeld && (wanted.returnValues !== true || held.version !== undefined)) return held
      return this.#acquire(text, key, wanted)
    })
    this.#locking = locked.catch(() => {})
    return locked
  }

  async #acquire(text: string, key: Uint8Array, wanted: LockWish): Promise<LockedKey> {
    const api = this.#api
    const { resolver } = this.#home
    const { signal } = this.#options
    const deadline = performance.now() + (wanted.lockWaitMs ?? this.#options.lockWaitMs)
    const isFirstLock = this.#primary === undefined
    const before = this.#locked.get(text)
    if (before === undefined) this.#locked.set(text, { key, isHeld: false, version: undefined })
    for (;;) {
      signal?.throwIfAborted()
      const left = Math.ceil(deadline - performance.now())
      try {
        const { results } = await api.acquirePessimisticLock({
          keys: [key],
          primary: this.#primary ?? key,
          startTs: this.startTs,
          forUpdateTs: this.#forUpdateTs,
          lockTtl: Math.ceil(performance.now() - this.#startedAt) + MANAGED_LOCK_TTL_MS,
          isFirstLock,
          waitTimeout: left > 0 ? Math.min(left, WAIT_SLICE_MS) : -1,
          returnValues: wanted.returnValues ?? false,
          wakeUpMode: 'force_lock',
          signal,
        })
        const { value, commitTs, lockedWithConflictTs } = results[0] ?? {}
        this.#primary ??= key
        this.#keepAlive(this.#primary)
        if (lockedWithConflictTs !== undefined) this.#forUpdateTs = Math.max(this.#forUpdateTs, lockedWithConflictTs)
        const locked = { key, isHeld: true, version: value && { value, commitTs } }
        this.#locked.set(text, locked)
        return locked
      } catch (error) {
        const isTimeout = isKvError(error, 'lock_wait_timeout')
        const lock = isTimeout || isKvError(error, 'key_locked') ? error.fields.lock : undefined
        if (lock !== undefined) {
          if (await resolver.resolve([lock], await api.tso(1))) continue
          if (deadline - performance.now() > 0) continue
          if (before === undefined) this.#locked.delete(text)
          throw isTimeout ? error : lockWaitTimeout(key, lock)
        }
        if (before === undefined && !isUncertain(error)) this.#locked.delete(text)
        throw error
      }
    }
  }

  #keepAlive(primary: Uint8Array): void {
    const { api, commitOptions } = this.#home
    const txn = { primary, startTs: this.startTs }
    this.#heartbeat ??= new Heartbeat(api, txn, this.#startedAt, commitOptions.heartbeatMaxMs)
  }

  // ---- The end

  /**
   * @param prewrite in place of the api's, for a home that does more in the same request.
   * @returns the commit_ts; of a transaction that wrote nothing, its `startTs`. Again after success: the same.
   * @throws Undetermined; and, when it did not commit and never will, KvError `write_conflict`, `key_locked` and others.
   */
  async commit(prewrite?: PercolatorApi['prewrite']): Promise<Timestamp> {
    if (this.#state.name === 'committed') return this.#state.commitTs
    if (this.#state.name === 'undetermined') return this.#run(this.#state.committer, (committer) => committer.learn())
    this.#requireOpen()
    this.#state = { name: 'committing' }
    await this.#locking
    const mutations = this.#mutations()
    const [first] = mutations
    if (first === undefined || (this.#buffer.size === 0 && this.#options.isolation === 'snapshot')) {
      // What it read was one snapshot, and writers commit in the order of their timestamps: nothing to validate.
      await this.#release()
      this.#state = { name: 'committed', commitTs: this.startTs }
      return this.startTs
    }
    const isPessimistic = this.#options.mode === 'pessimistic'
    const plan = {
      startTs: this.startTs,
      startedAt: this.#startedAt,
      primary: this.#primary ?? first.key,
      mutations,
      forUpdateTs: isPessimistic ? this.#forUpdateTs : undefined,
      reads: this.#readSet(mutations),
      lockWaitMs: this.#options.lockWaitMs,
      signal: this.#options.signal,
    }
    const { api, resolver, commitOptions, inBackground } = this.#home
    const committer = new Committer(api, resolver, commitOptions, inBackground, plan, prewrite)
    return this.#run(committer, () => committer.run())
  }

  async #run(committer: Committer, end: (committer: Committer) => Promise<Timestamp>): Promise<Timestamp> {
    this.#state = { name: 'committing' }
    try {
      const commitTs = await end(committer)
      this.#state = { name: 'committed', commitTs }
      return commitTs
    } catch (error) {
      this.#state = error instanceof Undetermined ? { name: 'undetermined', committer } : { name: 'rolled_back' }
      throw error
    } finally {
      this.#heartbeat?.stop()
      this.#releaseUnheld()
    }
  }

  /** Locks that were asked for, and may have been granted, are no part of what was committed or rolled back. */
  #releaseUnheld(): void {
    const keys = [...this.#locked.values()].filter(({ isHeld }) => !isHeld).map(({ key }) => key)
    if (keys.length > 0) this.#home.inBackground(this.#releaseKeys(keys))
  }

  /** Forgets the writes and releases the locks. Idempotent. @throws KvError `already_committed`; Undetermined */
  async rollback(): Promise<void> {
    if (this.#state.name === 'rolled_back') return
    if (this.#state.name === 'undetermined') {
      const commitTs = await this.commit().catch((error: unknown) => {
        if (error instanceof Undetermined) throw error
      })
      if (commitTs === undefined) return
    }
    if (this.#state.name === 'committed') throw alreadyCommitted(this.startTs, this.#state.commitTs)
    this.#requireOpen()
    this.#state = { name: 'rolled_back' }
    await this.#release()
  }

  /** Locks that this fails to release are resolved by whoever meets them. */
  async #release(): Promise<void> {
    this.#heartbeat?.stop()
    await this.#locking // A lock on its way is released too.
    await this.#releaseKeys([...this.#locked.values()].map(({ key }) => key)).catch(() => {})
  }

  async #releaseKeys(keys: readonly Uint8Array[]): Promise<void> {
    const all = { keys, startTs: this.startTs, forUpdateTs: TIMESTAMP_MAX - 1 }
    if (keys.length > 0) await this.#home.api.pessimisticRollback(all)
  }

  /** Writes, and locks that must show as Lock records: what was read for update and not written. */
  #mutations(): PrewriteMutation[] {
    const mutations = this.#buffer.mutations()
    const locked = [...this.#locked.values()].filter(({ isHeld }) => isHeld).map(({ key }) => key)
    for (const key of [...locked, ...this.#readForUpdate.values()])
      if (this.#buffer.get(key) === undefined) mutations.push({ op: 'lock', key })
    return mutations
  }

  /** What prewriting does not check by itself: an optimistic prewrite refuses keys that changed since the start. */
  #readSet(mutations: readonly PrewriteMutation[]): ReadSet | undefined {
    if (this.#options.isolation === 'snapshot') return undefined
    const keys = new Map(this.#keysRead)
    if (this.#options.mode === 'optimistic') for (const { key } of mutations) keys.delete(keyText(key))
    if (keys.size === 0 && this.#rangesRead.length === 0) return undefined
    return { keys: [...keys.values()], ranges: this.#rangesRead }
  }

  #recordKey(key: Uint8Array): void {
    if (this.#options.isolation === 'serializable') this.#keysRead.set(keyText(key), key)
  }

  #requireOpen(): void {
    if (this.#state.name === 'open') return
    const detail = `the transaction at ${this.startTs} is ${this.#state.name.replace('_', ' ')}`
    throw new KvError('txn_not_found', detail, { startTs: this.startTs })
  }
}

function versionOf(value: Uint8Array | undefined): MergedVersion | undefined {
  return value === undefined ? undefined : { value }
}

function alreadyExists(key: Uint8Array): KvError<'already_exists'> {
  return new KvError('already_exists', `key ${printKey(key)} exists already`, { key })
}

function alreadyCommitted(startTs: Timestamp, commitTs: Timestamp): KvError<'already_committed'> {
  const detail = `the transaction at ${startTs} is committed at ${commitTs} and cannot be rolled back`
  return new KvError('already_committed', detail, { startTs, commitTs })
}

function lockWaitTimeout(key: Uint8Array, lock: NonNullable<KvError<'key_locked'>['fields']['lock']>): KvError {
  const detail = `waited for the lock on ${printKey(key)} as long as asked`
  return new KvError('lock_wait_timeout', detail, { key, lock })
}
