import type { KeyRange } from '../bytes/key-range.js'
import { afterKey } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { eitherSignal, type LazySignal, signalOf } from '../event-loop/lazy-signal.js'
import type { Stages } from '../event-loop/stages.js'
import type { PercolatorApi, PrewriteMutation, ReadSet, Version } from '../percolator/api.js'
import { type CommitEffects, primaryOf } from '../percolator/commit-effects.js'
import { alreadyCommitted, alreadyExists } from '../percolator/errors.js'
import { primaryAmong, type Stamp, type Stamped } from '../percolator/stamped-key.js'
import type { Timestamp } from '../timestamp.js'
import type { Attached } from './attaches.js'
import { type CommitPlan, Committer, type TransactionContext } from './committer.js'
import { type EffectRows, needsRows } from './effect-rows.js'
import { SnapshotReader } from './snapshot-reader.js'
import { type LockedVersion, TransactionLocks } from './transaction-locks.js'
import { Undetermined } from './undetermined.js'
import { withSignal } from './with-signal.js'
import {
  type MergedPair,
  type MergedScan,
  type PutOptions,
  type ScanOrder,
  tooManyKeys,
  WriteBuffer,
  type WritesView,
} from './write-buffer.js'

export interface TransactionOptions {
  readonly mode: 'optimistic' | 'pessimistic'
  /** `serializable`: the commit fails if a key or range that was read has changed. */
  readonly isolation: 'snapshot' | 'serializable'
  /** Longest wait for other transactions' locks before `key_locked` or `lock_wait_timeout`. Calls may override it. */
  readonly lockWaitMs: number
  readonly bytesMax?: number | undefined
  readonly keysMax?: number | undefined
  readonly isFirst?: boolean | undefined
  readonly signal?: AbortSignal | undefined
}

/** `commitTs` is absent for the transaction's own write. */
export type MergedVersion = LockedVersion

/** Bytes of memory per recorded key or bound, beyond its content. */
const READ_BYTES = 100

type State =
  | { readonly name: 'open' | 'committing' | 'rolled_back' }
  | { readonly name: 'committed'; readonly commitTs: Timestamp }
  | { readonly name: 'undetermined'; readonly committer: Committer }

/**
 * One transaction. Reads see the snapshot at `startTs` and the transaction's own writes. Writes stay in a buffer until `commit`.
 *
 * Optimistic: conflicts show at commit. Pessimistic: each write first locks its key at the latest version, and waits in the
 * server's queue for it; `getForUpdate` locks and reads the latest version. The buffer is never applied under another `startTs`:
 * to try again, a program begins a new transaction and computes its writes again.
 * @see TiKV client-go `txnkv/transaction/txn.go`.
 */
export class Transaction {
  readonly #context: TransactionContext
  readonly #options: TransactionOptions
  readonly #startedAt = performance.now()
  readonly #reader: SnapshotReader
  readonly #buffer: WriteBuffer
  /** Pessimistic only. */
  readonly #locks: TransactionLocks | undefined
  /** Keys that an optimistic transaction read for update. The commit checks them like writes and puts Lock records. */
  #readForUpdate: Map<string, Uint8Array> | undefined
  /**
   * Keys read from the snapshot that must not change before the commit: in a serializable transaction all, else those of
   * `requireUnchanged`.
   */
  #keysRead: Map<string, Uint8Array> | undefined
  /** Keys of `#keysRead` whose versions expire. */
  #expiring: Set<string> | undefined
  readonly #rangesRead: KeyRange[] = []
  #readBytes = 0
  #known: Map<string, LockedVersion | undefined> | undefined
  #state: State = { name: 'open' }
  #effectRows: EffectRows | undefined
  #attached: Attached | undefined
  #committer: Committer | undefined
  #committing: Promise<Timestamp> | undefined

  constructor(
    context: TransactionContext,
    readonly startTs: Timestamp,
    options: TransactionOptions,
  ) {
    this.#context = context
    this.#options = options
    this.#buffer = new WriteBuffer(startTs, options.bytesMax, options.keysMax)
    const { api, resolver, commitOptions } = context
    const { signal } = options
    const waiting = withSignal(api, signal)
    this.#reader = new SnapshotReader(waiting, resolver, startTs, options)
    if (options.mode === 'optimistic') return
    const { heartbeatMaxMs } = commitOptions
    const owner = { waiting, api, resolver, startTs, startedAt: this.#startedAt, heartbeatMaxMs, signal }
    this.#locks = new TransactionLocks(owner)
  }

  get commitTs(): Timestamp | undefined {
    return this.#state.name === 'committed' ? this.#state.commitTs : undefined
  }
  get state(): State['name'] {
    return this.#state.name
  }
  get writes(): number {
    return this.#buffer.size
  }
  /** Bytes of keys and values written. */
  get bytes(): number {
    return this.#buffer.bytes
  }
  /** Its versionstamped puts, whose keys the commit_ts tells. */
  get stamped(): readonly Stamped[] {
    return this.#buffer.stamped
  }
  /** The part of `heldBytes` that views of scans take. */
  get viewBytes(): number {
    return this.#buffer.viewBytes
  }
  /** Bytes held in memory: the writes, what views see of earlier ones, and, in a serializable transaction, the recorded reads. */
  get heldBytes(): number {
    return this.#buffer.bytes + this.#buffer.viewBytes + this.#readBytes
  }

  /** True while a commit runs that its signal can no longer stop. */
  get mayBeDecided(): boolean {
    return this.#state.name === 'committing' && this.#committer?.mayHaveDecided === true
  }

  // ---- Reads

  async get(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): Promise<MergedVersion | undefined> {
    this.requireOpen()
    const own = this.#buffer.get(key)
    if (own !== undefined) return own ?? undefined
    this.#recordKey(key)
    const text = this.#known === undefined ? '' : keyText(key)
    if (this.#known?.has(text)) return this.#known.get(text)
    const version = await this.#reader.get(key, lockWaitMs, signal)
    this.#recordExpiry(key, version)
    return version
  }

  /**
   * Reads keys in one call. Later reads of them are answered from memory.
   * @param keys no duplicates.
   * @returns the snapshot's version of each key, by `keyText`.
   */
  async prefetch(keys: readonly Uint8Array[]): Promise<ReadonlyMap<string, Version | undefined>> {
    for (const key of keys) this.#recordKey(key)
    const prefetched = new Map<string, Version | undefined>(keys.map((key) => [keyText(key), undefined]))
    for (const { key, value, ...rest } of await this.#reader.batchGet(keys)) {
      if (value === undefined) continue
      const version = { value, ...rest }
      prefetched.set(keyText(key), version)
      this.#recordExpiry(key, version)
    }
    this.#known = prefetched
    return prefetched
  }

  /** Adds a version that the caller has read at `startTs`. Later reads of the key are answered with it. */
  preload(key: Uint8Array, version: LockedVersion | undefined): void {
    this.#recordKey(key)
    this.#recordExpiry(key, version)
    this.#known ??= new Map()
    this.#known.set(keyText(key), version)
  }

  /** Makes the commit fail, at any isolation, if this key changes before it. @param version the snapshot's version. */
  requireUnchanged(key: Uint8Array, version: LockedVersion | undefined): void {
    this.#recordKey(key, true)
    this.#recordExpiry(key, version)
  }

  /** @param keys no duplicates. @returns the pairs that exist, in the order of the keys. */
  async batchGet(keys: readonly Uint8Array[]): Promise<readonly MergedPair[]> {
    this.requireOpen()
    const own = keys.map((key) => this.#buffer.get(key))
    const others = keys.filter((_, i) => own[i] === undefined)
    for (const key of others) this.#recordKey(key)
    const read = new Map<string, MergedPair>()
    for (const pair of await this.#reader.batchGet(others)) {
      read.set(keyText(pair.key), pair)
      this.#recordExpiry(pair.key, pair)
    }
    return keys.flatMap((key, i): MergedPair[] => {
      const written = own[i]
      if (written !== undefined) return written === null ? [] : [{ key, ...written }]
      const pair = read.get(keyText(key))
      return pair === undefined ? [] : [pair]
    })
  }

  /** The transaction's writes as of now, for a scan of several pages. Must be released. */
  view(): WritesView {
    return this.#buffer.view()
  }

  /** @param writes the view to merge. Default: the writes as of now. */
  async scan(
    request: ScanOrder,
    lockWaitMs?: number,
    signal?: LazySignal,
    writes?: Pick<WritesView, 'mergeScan'>,
  ): Promise<MergedScan> {
    this.requireOpen()
    if (writes !== undefined) return this.#scan(request, lockWaitMs, signal, writes)
    const view = this.view()
    try {
      return await this.#scan(request, lockWaitMs, signal, view)
    } finally {
      view.release()
    }
  }

  #scan(
    request: ScanOrder,
    lockWaitMs: number | undefined,
    signal: LazySignal | undefined,
    writes: Pick<WritesView, 'mergeScan'>,
  ): Promise<MergedScan> {
    const { reverse } = request
    return writes.mergeScan(request, async ({ start, end, limit }) => {
      const isRecorded = this.#options.isolation === 'serializable'
      if (isRecorded) this.#charge(start, end)
      // The range is recorded before it is read, so that a commit during the read validates it too.
      const index = isRecorded ? this.#rangesRead.push({ start, end }) - 1 : -1
      const answer = await this.#reader.scan({ ...request, start, end, limit }, lockWaitMs, signal)
      const last = answer.pairs.at(-1)?.key
      const isWhole = answer.pairs.length < limit && answer.isCut !== true
      if (isRecorded && !isWhole && last !== undefined)
        this.#rangesRead[index] = reverse ? { start: last, end } : { start, end: afterKey(last) }
      return answer
    })
  }

  /**
   * Reads a key on which the transaction's writes will depend. Pessimistic: locks the key and reads its latest version,
   * which may be newer than the snapshot. Optimistic: reads the snapshot; a newer version is a conflict at commit.
   */
  async getForUpdate(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): Promise<MergedVersion | undefined> {
    this.requireOpen()
    if (this.#locks === undefined) {
      this.#readForUpdate ??= new Map()
      this.#requireRoom(this.#readForUpdate.size)
      this.#readForUpdate.set(keyText(key), key)
      return this.get(key, lockWaitMs, signal)
    }
    const own = this.#buffer.get(key)
    if (own !== undefined) return own ?? undefined
    this.#charge(key)
    this.#requireRoom(this.#locks.size)
    const { lockWaitMs: usualMs } = this.#options
    return this.#locks.lock(key, { returnValues: true, lockWaitMs: lockWaitMs ?? usualMs, signal })
  }

  /** Reads a key that the transaction will write. An optimistic write itself detects a newer version. */
  getToWrite(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): Promise<MergedVersion | undefined> {
    return this.#locks === undefined ? this.get(key, lockWaitMs, signal) : this.getForUpdate(key, lockWaitMs, signal)
  }

  // ---- Writes

  /** Synchronous in an optimistic transaction, which saves a promise per write. */
  put(
    key: Uint8Array,
    value: Uint8Array,
    options?: PutOptions,
    lockWaitMs?: number,
    signal?: LazySignal,
  ): void | Promise<void> {
    this.requireOpen()
    if (this.#locks === undefined) return this.#buffer.put(key, value, options)
    return this.#lockToWrite(this.#locks, key, lockWaitMs, signal).then(() => this.#buffer.put(key, value, options))
  }

  /**
   * Puts a key that `stamp` makes of the commit_ts. The transaction itself does not see it. Nobody else can have locked it.
   * @returns the counter of the key.
   */
  putStamped(key: Uint8Array, value: Uint8Array, stamp: Stamp, expireTs?: Timestamp): number {
    this.requireOpen()
    return this.#buffer.putStamped(key, value, stamp, expireTs)
  }

  delete(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): void | Promise<void> {
    this.requireOpen()
    if (this.#locks === undefined) return this.#buffer.delete(key)
    return this.#lockToWrite(this.#locks, key, lockWaitMs, signal).then(() => this.#buffer.delete(key))
  }

  #lockToWrite(
    locks: TransactionLocks,
    key: Uint8Array,
    lockWaitMs: number | undefined,
    signal: LazySignal | undefined,
  ): Promise<unknown> {
    this.#requireRoom(locks.size)
    return locks.lock(key, { lockWaitMs: lockWaitMs ?? this.#options.lockWaitMs, signal })
  }

  /** @throws KvError `already_exists`. */
  async insert(
    key: Uint8Array,
    value: Uint8Array,
    options?: PutOptions,
    lockWaitMs?: number,
    signal?: LazySignal,
  ): Promise<void> {
    const found = await this.getToWrite(key, lockWaitMs, signal)
    if (found !== undefined) throw alreadyExists(key)
    await this.put(key, value, options)
  }

  /** Undoes the writes of `body` when it throws. The locks that it took stay. Must not be nested. */
  atomically<T>(body: () => Promise<T>): Promise<T> {
    return this.#buffer.atomically(body)
  }

  // ---- The end

  /**
   * @param prewrite replaces the api's `prewrite`, so that a server can write more in the same request.
   * @param commitEffects travel on the commit, which then takes one request, whatever its size. They count as something written.
   * @param signal ends the waits of the commit, as the transaction's own signal does. The transaction is then rolled back.
   * @param row a row of the server itself, committed with the writes; left out when there is nothing to commit.
   * @returns the commit_ts, or `startTs` when nothing was written. A second call after success returns the same.
   * @throws Undetermined when the outcome is unknown; KvError `invalid_argument` for a key attached to a lease that is not among
   *   the commit effects, and the transaction stays open; `write_conflict`, `key_locked` and others when it did not commit and
   *   never will.
   */
  commit(
    prewrite?: PercolatorApi['prewrite'],
    commitEffects?: CommitEffects,
    signal?: AbortSignal,
    stages?: Stages,
    row?: PrewriteMutation,
  ): Promise<Timestamp> {
    if (this.#state.name !== 'committing' || this.#committing === undefined)
      this.#committing = this.#commit(prewrite, commitEffects, signal, stages, row)
    return this.#committing
  }

  async #commit(
    prewrite?: PercolatorApi['prewrite'],
    commitEffects?: CommitEffects,
    signal?: AbortSignal,
    stages?: Stages,
    row?: PrewriteMutation,
  ): Promise<Timestamp> {
    if (this.#state.name === 'committed') return this.#state.commitTs
    if (this.#state.name === 'undetermined')
      return this.#run(this.#state.committer, this.#state.committer.findOutcome())
    this.requireOpen()
    this.#state = { name: 'committing' }
    if (this.#locks !== undefined) await this.#locks.idle()
    let mutations: PrewriteMutation[]
    try {
      mutations = this.#mutations(commitEffects?.leases)
    } catch (error) {
      this.#state = { name: 'open' }
      throw error
    }
    const { effectsAsRows } = this.#context
    if (effectsAsRows !== undefined && commitEffects !== undefined && needsRows(commitEffects)) {
      const asked = { commitEffects, startTs: this.startTs, mutations, resolver: this.#context.resolver }
      const { lockWaitMs } = this.#options
      const within = signalOf(eitherSignal(this.#options.signal, signal))
      const effectRows = await effectsAsRows({ ...asked, lockWaitMs, signal: within }).catch((error) =>
        this.#refuse(error),
      )
      this.#effectRows = effectRows
      mutations = [...mutations, ...effectRows.mutations]
      commitEffects = { leases: commitEffects.leases }
    }
    const leases = commitEffects?.leases ?? []
    if (leases.length > 0)
      this.#attached = await this.#context.attaches?.(mutations, leases).catch((error) => this.#refuse(error))
    const reads = this.#readSet(mutations)
    const effectsPrimary = commitEffects && primaryOf(commitEffects)
    const candidates = row !== undefined && mutations.length > 0 ? [...mutations, row] : mutations
    const primary =
      this.#locks?.primary ?? primaryAmong(candidates) ?? (effectsPrimary && row ? row.key : effectsPrimary)
    const isReadOnly =
      this.#buffer.size === 0 &&
      this.#effectRows === undefined &&
      (mutations.length === 0 || this.#options.isolation === 'snapshot')
    if (primary === undefined || (isReadOnly && effectsPrimary === undefined)) {
      // All reads saw one snapshot, and writers commit in the order of their timestamps: nothing else needs validation.
      await this.#locks?.requireHeld().catch((error) => this.#refuse(error))
      await this.#locks?.release()
      this.#state = { name: 'committed', commitTs: this.startTs }
      return this.startTs
    }
    const within = signalOf(eitherSignal(this.#options.signal, signal))
    if (within?.aborted) this.#refuse(within.reason)
    if (row !== undefined) mutations = [...mutations, row]
    if (this.#attached !== undefined) mutations = [...mutations, ...this.#attached.rows]
    const locks = this.#locks?.primary === undefined ? undefined : this.#locks // Versionstamped puts lock nothing.
    const plan: CommitPlan = {
      startTs: this.startTs,
      startedAt: this.#startedAt,
      primary,
      mutations,
      isStamped: this.#buffer.stamped.length > 0,
      commitEffects: hasEffects(commitEffects) ? commitEffects : undefined,
      forUpdateTs: locks?.forUpdateTs,
      grantedAt: locks && ((key) => locks.grantedAt(key)),
      reads,
      isFirst: this.#options.isFirst,
      lockWaitMs: this.#options.lockWaitMs,
      signal: within,
      stages,
      markDepth: this.#effectRows?.markDepth,
    }
    const committer = new Committer(this.#context, plan, prewrite)
    return await this.#run(committer, committer.run())
  }

  async #run(committer: Committer, end: Promise<Timestamp>): Promise<Timestamp> {
    this.#state = { name: 'committing' }
    this.#committer = committer
    try {
      const commitTs = await end
      this.#state = { name: 'committed', commitTs }
      if (this.#effectRows !== undefined) this.#context.inBackground(this.#effectRows.committed())
      return commitTs
    } catch (error) {
      this.#state = error instanceof Undetermined ? { name: 'undetermined', committer } : { name: 'rolled_back' }
      throw this.#effectRows === undefined ? error : this.#effectRows.refusal(error)
    } finally {
      this.#attached?.done()
      if (this.#locks !== undefined) this.#context.inBackground(this.#locks.end())
    }
  }

  #refuse(error: unknown): never {
    this.#state = { name: 'rolled_back' }
    this.#attached?.done()
    if (this.#locks !== undefined) this.#context.inBackground(this.#locks.release())
    throw error
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
    if (this.#state.name === 'committed') throw alreadyCommitted(undefined, this.startTs, this.#state.commitTs)
    this.requireOpen()
    this.#state = { name: 'rolled_back' }
    await this.#locks?.release()
  }

  /** The writes, and a Lock record for each key that was read for update or locked, and not written. */
  #mutations(leases: CommitEffects['leases']): PrewriteMutation[] {
    const mutations = this.#buffer.mutations(leases)
    if (this.#locks === undefined && this.#readForUpdate === undefined) return this.#withStamped(mutations)
    for (const key of [...(this.#locks?.keys ?? []), ...(this.#readForUpdate?.values() ?? [])])
      if (!this.#buffer.has(key)) mutations.push({ op: 'lock', key })
    return this.#withStamped(mutations)
  }

  #withStamped(mutations: PrewriteMutation[]): PrewriteMutation[] {
    return this.#buffer.stamped.length === 0 ? mutations : [...mutations, ...this.#buffer.stampedMutations()]
  }

  /**
   * The reads to validate. Without the keys that an optimistic transaction writes, because the prewrite checks them, except those
   * whose versions may expire before the commit.
   */
  #readSet(mutations: readonly PrewriteMutation[]): ReadSet | undefined {
    if (this.#keysRead === undefined && this.#rangesRead.length === 0) return undefined
    const keys = new Map(this.#keysRead)
    if (this.#locks === undefined)
      for (const { key } of mutations) {
        const text = keyText(key)
        if (!this.#expiring?.has(text)) keys.delete(text)
      }
    if (keys.size === 0 && this.#rangesRead.length === 0) return undefined
    return { keys: [...keys.values()], ranges: this.#rangesRead }
  }

  #recordKey(key: Uint8Array, isRequired = this.#options.isolation === 'serializable'): void {
    if (!isRequired || this.#keysRead?.has(keyText(key))) return
    this.#charge(key)
    this.#keysRead ??= new Map()
    this.#keysRead.set(keyText(key), key)
  }

  #recordExpiry(key: Uint8Array, version: Pick<Version, 'expireTs'> | undefined): void {
    if (version?.expireTs === undefined || !this.#keysRead?.has(keyText(key))) return
    this.#expiring ??= new Set()
    this.#expiring.add(keyText(key))
  }

  /** The recorded reads have the same limit as the writes. @throws KvError `payload_too_large` */
  #charge(...keys: readonly (Uint8Array | undefined)[]): void {
    const { bytesMax = Number.POSITIVE_INFINITY } = this.#options
    for (const key of keys) this.#readBytes += READ_BYTES + (key?.length ?? 0)
    if (this.#readBytes > bytesMax) {
      const detail = `the transaction would remember over ${bytesMax} bytes of what it read`
      throw new KvError('payload_too_large', detail, { limit: bytesMax })
    }
  }

  /** @param keys number of keys locked or read for update. @throws KvError `payload_too_large` */
  #requireRoom(keys: number): void {
    const { keysMax = Number.POSITIVE_INFINITY } = this.#options
    if (keys > keysMax) throw tooManyKeys(keysMax)
  }

  /** @throws KvError `txn_not_found` */
  requireOpen(): void {
    if (this.#state.name === 'open') return
    const detail = `the transaction at ${this.startTs} is ${this.#state.name.replace('_', ' ')}`
    throw new KvError('txn_not_found', detail, { startTs: this.startTs })
  }
}

/** An empty list of commit effects needs no commit in one phase. */
function hasEffects(commitEffects: CommitEffects | undefined): boolean {
  return (
    commitEffects !== undefined && (primaryOf(commitEffects) !== undefined || (commitEffects.leases ?? []).length > 0)
  )
}
