import { KvError } from '../../src/errors/kv-error.js'
import { StoreMeters } from '../../src/meters/store-meters.js'
import { gc } from '../../src/percolator/actions/gc.js'
import { blocksRead, get } from '../../src/percolator/actions/get.js'
import { decideLock, hasExpiredSince, isNewer, readChanged } from '../../src/percolator/actions/validate-reads.js'
import type { AcquirePessimisticLockRequest, ValidateReadsRequest } from '../../src/percolator/api.js'
import { keyLocked } from '../../src/percolator/errors.js'
import type { Lock } from '../../src/percolator/lock.js'
import { lockInfo } from '../../src/percolator/lock-info.js'
import { endsHistory, type HistoryDepth, type Mutation, type RowView } from '../../src/percolator/row.js'
import { isData, type WriteRecord } from '../../src/percolator/write.js'
import { lockingDepthTs, lockKeys } from '../../src/store/calls/lock-keys.js'
import type { Change, RowAccess } from '../../src/store/calls/row-access.js'
import { WriteCalls } from '../../src/store/calls/write-calls.js'
import type { Timestamp } from '../../src/timestamp.js'

interface Row {
  readonly lock: Lock | undefined
  /** Newest first. */
  readonly writes: readonly WriteRecord[]
  /** start_ts of the values in CF_DEFAULT, ascending. */
  readonly values: readonly Timestamp[]
}

/** What a store knows at one moment. */
export interface Snapshot {
  readonly rows: readonly Row[]
  readonly lastTs: Timestamp
  readonly maxTs: Timestamp
  readonly safePoint: Timestamp
}

export const NO_ROW: Row = { lock: undefined, writes: [], values: [] }

const KEYS = ['a', 'b', 'c'].map((name) => new TextEncoder().encode(name))

export function keyAt(index: number): Uint8Array {
  return KEYS[index] as Uint8Array
}

export function nameOf(index: number): string {
  return String.fromCharCode(keyAt(index)[0] as number)
}

function indexOf(key: Uint8Array): number {
  return (key[0] as number) - (keyAt(0)[0] as number)
}

const METERS = new StoreMeters()

/**
 * A store that begins at a snapshot, for one call or a few: the server's own calls (`WriteCalls`) on rows in memory. Each change reads,
 * decides and writes at once, as the latches of a real store make it appear. A history is as short as its depth permits.
 */
export class SnapshotStore implements RowAccess {
  readonly rows: Row[]
  lastTs: Timestamp
  readonly clearedTs = undefined
  readonly removalTs = 0
  maxTs: Timestamp
  safePoint: Timestamp
  readonly passedTs = 0
  /** Every value stands in CF_DEFAULT, so that none may be left there, or be missing. */
  readonly shortValueBytesMax = 0
  readonly meters = METERS
  readonly calls = new WriteCalls({ rows: this, validateReads: (request) => this.validateReads(request) })

  constructor({ rows, lastTs, maxTs, safePoint }: Snapshot) {
    this.rows = [...rows]
    this.lastTs = lastTs
    this.maxTs = maxTs
    this.safePoint = safePoint
  }

  get snapshot(): Snapshot {
    const { rows, lastTs, maxTs, safePoint } = this
    return { rows, lastTs, maxTs, safePoint }
  }

  // ---- Timestamps. The clock is ahead of all of them, and no TTL is over unless a call says so.

  tso(): Timestamp {
    return ++this.lastTs
  }
  clock(): Timestamp {
    return this.lastTs
  }
  now(): Timestamp {
    return this.lastTs
  }
  jumpedSince(): number {
    return 0
  }
  observe(ts: Timestamp): undefined {
    this.lastTs = Math.max(this.lastTs, ts)
  }
  observeRead(ts: Timestamp): undefined {
    this.observe(ts)
    this.maxTs = Math.max(this.maxTs, ts)
  }

  // ---- Rows

  rowOf(key: Uint8Array): Row {
    return this.rows[indexOf(key)] as Row
  }

  async historyOf(key: Uint8Array): Promise<readonly WriteRecord[]> {
    return this.rowOf(key).writes
  }

  #viewOf(key: Uint8Array, ts: Timestamp, depth: HistoryDepth): RowView {
    const { lock, writes } = this.rowOf(key)
    const end = writes.findIndex((write) => endsHistory(write, ts, depth))
    return { key, lock, writes: depth === 'none' ? [] : writes.slice(0, end === -1 ? writes.length : end + 1) }
  }

  claim(): never {
    throw new Error('no call of a world is versionstamped')
  }

  lockedBy(): Promise<never> {
    throw new Error('every call of a world names its keys')
  }

  async update<T>({ keys, startTs, readTs, depth, depthTs = startTs, decide }: Change<T>): Promise<T> {
    if (readTs !== undefined) this.observeRead(readTs)
    const views = keys.map((key, i) =>
      this.#viewOf(key, depthTs, typeof depth === 'function' ? depth(i, this.rowOf(key).lock) : depth),
    )
    const decision = decide(views)
    if (!decision.ok) throw decision.error
    await decision.validate?.()
    this.apply(decision.mutations)
    return decision.value
  }

  /**
   * @returns the for_update_ts of the lock of one key; 0: the locking read has not seen the latest version.
   * @throws KvError as the store refuses it, without a wait.
   */
  lock(request: AcquirePessimisticLockRequest): Timestamp {
    this.observeRead(request.forUpdateTs)
    const views = request.keys.map((key) => this.#viewOf(key, lockingDepthTs(request), 'data'))
    const locking = lockKeys(this, views, request, () => false)
    if (locking.kind === 'busy') throw locking.error ?? new Error('no key is promised to anybody')
    this.apply(locking.mutations)
    const isLatest = locking.keys.every(({ key, version }) => this.rowOf(key).writes.find(isData) === version)
    return isLatest ? Math.max(request.forUpdateTs, locking.keys[0]?.lockedWithConflictTs ?? 0) : 0
  }

  apply(mutations: readonly Mutation[]): void {
    for (const mutation of mutations) {
      const index = indexOf(mutation.key)
      this.rows[index] = changed(this.rows[index] as Row, mutation)
    }
  }

  // ---- Collection

  raiseSafePoint(): void {
    this.safePoint = this.lastTs
  }

  collect(key: Uint8Array): void {
    this.apply(gc(this.#viewOf(key, 0, 'all'), this.safePoint).mutations)
  }

  // ---- Reads

  /** @returns the version that a read at `ts` finds; undefined: none. @throws KvError `key_locked` */
  read(key: Uint8Array, ts: Timestamp): WriteRecord | undefined {
    this.observeRead(ts)
    const { lock, writes } = this.rowOf(key)
    if (lock !== undefined && blocksRead(lock, key, ts)) throw keyLocked(lockInfo(key, lock))
    const found = get(writes, ts)
    return typeof found === 'string' ? undefined : found
  }

  async validateReads(request: ValidateReadsRequest): Promise<void> {
    this.observeRead(request.commitTs)
    for (const key of request.keys) {
      const { lock, writes } = this.rowOf(key)
      const decision = lock === undefined ? 'free' : decideLock(key, lock, request)
      if (lock !== undefined && decision === 'wait') throw keyLocked(lockInfo(key, lock))
      if (lock !== undefined && decision === 'conflict')
        throw readChanged(key, request.startTs, { startTs: lock.startTs, commitTs: 0, primary: lock.primary })
      const newer = writes.find((write) => isNewer(write, request))
      if (newer !== undefined) throw readChanged(key, request.startTs, newer)
      const seen = writes.find((write) => isData(write) && write.commitTs <= request.startTs)
      if (seen !== undefined && hasExpiredSince(seen, request)) throw readChanged(key, request.startTs, seen)
    }
  }
}

function changed(row: Row, mutation: Mutation): Row {
  switch (mutation.type) {
    case 'put-lock':
      return { ...row, lock: mutation.lock }
    case 'delete-lock':
      return { ...row, lock: undefined }
    case 'put-write': {
      const { write } = mutation
      const others = row.writes.filter(({ commitTs }) => commitTs !== write.commitTs)
      return { ...row, writes: [...others, write].sort((one, other) => other.commitTs - one.commitTs) }
    }
    case 'delete-write':
      return { ...row, writes: row.writes.filter(({ commitTs }) => commitTs !== mutation.commitTs) }
    case 'put-value':
      return { ...row, values: [...without(row.values, mutation.startTs), mutation.startTs].sort((a, b) => a - b) }
    case 'delete-value':
      return { ...row, values: without(row.values, mutation.startTs) }
  }
}

function without(values: readonly Timestamp[], startTs: Timestamp): Timestamp[] {
  return values.filter((value) => value !== startTs)
}

/** @returns what was refused; anything else that fails is a defect. */
export async function refusalOf(call: () => Promise<unknown>): Promise<KvError | undefined> {
  try {
    await call()
    return undefined
  } catch (error) {
    if (error instanceof KvError && error.code !== 'internal') return error
    throw error
  }
}
