import type { LockInfo } from '../../errors/lock-info.js'
import { type Change, compareChanges, type ExpiryChange, type LoggedChange } from '../../percolator/change.js'
import { ChangeFilter } from '../../percolator/change-filter.js'
import { belowSafePoint } from '../../percolator/errors.js'
import type { Lock } from '../../percolator/lock.js'
import { resolvedBelow } from '../../percolator/resolved.js'
import { expiryTs, isData } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import type { ChangeListener, ChangeLog, ChangePage, ChangesRequest, ExpiriesOptions } from '../change-log.js'
import { type RowTable, valueOfPut } from './row-table.js'

const PAGE = 256

/** What it needs of the rows. */
export interface LoggedRows {
  readonly table: RowTable
  readonly safePoint: Timestamp
  readonly newestWrite: Timestamp
  readonly lastTs: Timestamp
  maxTs: Timestamp
  requireAvailable(): void
  infoOf(key: Uint8Array, lock: Lock): LockInfo
}

/** The changes in a sorted list. */
export class MemoryChangeLog implements ChangeLog {
  readonly #rows: LoggedRows
  #changes: LoggedChange[] = []
  readonly #listeners = new Set<ChangeListener>()
  /** Timestamps of changes that are decided, and not made yet. */
  readonly #holds = new Set<Timestamp>()
  #begin: Timestamp = 0
  #resolved: Timestamp = 0

  constructor(rows: LoggedRows) {
    this.#rows = rows
  }

  get start(): Timestamp {
    return Math.max(this.#begin, this.#rows.safePoint)
  }
  get newest(): Timestamp {
    return Math.max(this.#rows.newestWrite, this.#begin, this.#changes.at(-1)?.commitTs ?? 0, ...this.#holds)
  }
  get resolved(): Timestamp {
    return this.#resolved
  }

  /** A restore brings pairs that are in no log. */
  beginAt(ts: Timestamp): void {
    this.#begin = ts
    this.#changes = []
    for (const listener of this.#listeners) listener.reloaded()
  }

  /** Keeps resolved_ts below `ts` while `body` runs. */
  async holdBack<T>(ts: Timestamp, body: () => Promise<T>): Promise<T> {
    this.#holds.add(ts)
    try {
      return await body()
    } finally {
      this.#holds.delete(ts)
    }
  }

  add(changes: readonly LoggedChange[]): void {
    const [first, ...others] = changes
      .map((change) => ({ ...change, key: Buffer.from(change.key) }))
      .sort(compareChanges)
    if (first === undefined) return
    const later = this.#changes.splice(this.#firstAbove(first))
    for (const change of [...later, first, ...others].sort(compareChanges)) this.#changes.push(change)
    for (const listener of this.#listeners) listener.settled(changes)
  }

  /** Index of the first change behind this one. */
  #firstAbove(change: LoggedChange): number {
    let [low, high] = [0, this.#changes.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (compareChanges(this.#changes[middle] as LoggedChange, change) > 0) high = middle
      else low = middle + 1
    }
    return low
  }

  trim(safePoint: Timestamp): void {
    this.#changes = this.#changes.filter(({ commitTs }) => commitTs > safePoint)
  }

  async begin(): Promise<void> {} // Memory does not outlive the process.

  resolve(): Timestamp {
    this.#rows.requireAvailable()
    let resolved = this.#rows.lastTs
    for (const ts of this.#holds) resolved = Math.min(resolved, ts - 1)
    for (const { lock } of this.#rows.table.locked) {
      const bound = lock && resolvedBelow(lock)
      if (bound !== undefined) resolved = Math.min(resolved, bound)
    }
    this.#resolved = Math.max(this.#resolved, resolved)
    this.#rows.maxTs = Math.max(this.#rows.maxTs, this.#resolved)
    return this.#resolved
  }

  heldBackBy(limit: number): LockInfo[] {
    const held: { readonly bound: Timestamp; readonly info: LockInfo }[] = []
    for (const { key, lock } of this.#rows.table.locked) {
      const bound = lock && resolvedBelow(lock)
      if (lock !== undefined && bound !== undefined) held.push({ bound, info: this.#rows.infoOf(key, lock) })
    }
    held.sort((a, b) => a.bound - b.bound)
    return held.slice(0, limit).map(({ info }) => info)
  }

  async *read({ since, upTo, ranges, keysOnly, signal }: ChangesRequest): AsyncGenerator<ChangePage, void> {
    const filter = new ChangeFilter(ranges)
    let after = { type: 'put', key: END, commitTs: since, startTs: Number.MAX_SAFE_INTEGER } as LoggedChange
    const expired = this.#expired(since, upTo).filter((change) => filter.has(change))
    while (!signal?.aborted) {
      this.#requireLogged(since)
      const page: LoggedChange[] = []
      let last: LoggedChange | undefined
      for (let i = this.#firstAbove(after); i < this.#changes.length; i++) {
        const change = this.#changes[i] as LoggedChange
        if (change.commitTs > upTo) break
        last = change
        if (filter.has(change)) page.push(change)
        if (page.length === PAGE) break
      }
      const isEnd = page.length < PAGE || last === undefined
      const end = isEnd ? expired.length : expired.findIndex((change) => compareChanges(change, last as Change) > 0)
      const changes = [...page, ...expired.splice(0, end === -1 ? expired.length : end)].sort(compareChanges)
      yield {
        changes: keysOnly ? changes.map(withoutValue) : this.#filled(changes),
        upTo: isEnd ? upTo : (last as Change).commitTs - 1,
      }
      if (isEnd) return
      after = last as LoggedChange
    }
  }

  mayExpire(since: Timestamp, upTo: Timestamp): boolean {
    // What a collection has removed is not known any more: `expiries` refuses it.
    return since < this.start || this.#expired(since, upTo).length > 0
  }

  async *expiries(
    since: Timestamp,
    upTo: Timestamp,
    { isWanted = () => true, isLenient = false }: ExpiriesOptions = {},
  ): AsyncGenerator<readonly ExpiryChange[], void> {
    this.#rows.requireAvailable()
    if (!isLenient) this.#requireLogged(since)
    const expired = this.#expired(since, upTo).filter(({ key }) => isWanted(key))
    for (let from = 0; from < expired.length; from += PAGE) yield expired.slice(from, from + PAGE)
  }

  #expired(since: Timestamp, upTo: Timestamp): ExpiryChange[] {
    const expired: ExpiryChange[] = []
    for (const { key, writes } of this.#rows.table.expiring) {
      let replacedTs = Number.POSITIVE_INFINITY
      for (const write of writes.filter(isData)) {
        const at = expiryTs(write)
        const { commitTs, startTs, expireTs } = write
        const version = { commitTs, startTs }
        const isExpiring = expireTs !== 0 && at > since && at <= upTo && at < replacedTs
        if (isExpiring) expired.push({ type: 'expire', key, commitTs: at, startTs: at, expireTs, version })
        replacedTs = commitTs
      }
    }
    return expired.sort(compareChanges)
  }

  async *withValues(changes: readonly Change[]): AsyncGenerator<readonly Change[], void> {
    this.#rows.requireAvailable()
    const [first] = changes
    if (first !== undefined) this.#requireLogged(first.commitTs - 1)
    yield this.#filled(changes)
  }

  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #requireLogged(since: Timestamp): void {
    this.#rows.requireAvailable()
    if (since < this.start) throw belowSafePoint(since, this.start)
  }

  #filled(changes: readonly Change[]): Change[] {
    return changes.flatMap((change): Change[] => {
      if (change.type === 'delete_range' || change.type === 'expire') return [change]
      const row = this.#rows.table.get(change.key)
      const write = row?.writes.find(
        ({ commitTs, startTs }) => commitTs === change.commitTs && startTs === change.startTs,
      )
      if (write === undefined) return []
      if (change.type !== 'put') return [change]
      const value = valueOfPut(row, write)
      return [write.expireTs === 0 ? { ...change, value } : { ...change, value, expireTs: write.expireTs }]
    })
  }
}

/** Above every key. */
const END = Buffer.alloc(8193, 0xff)

function withoutValue(change: Change): Change {
  return change.type === 'put' ? { ...change, value: undefined } : change
}
