import { ChangeFilter } from '../../../changes/rules/change-filter.js'
import { decodeChanges } from '../../../changes/rules/codec/change-log.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { TimeSlicer } from '../../../event-loop/time-slicer.js'
import { SLICE_ITEMS } from '../../../limits.js'
import type { Change, ExpiryChange, LoggedChange } from '../../../percolator/change.js'
import { packRecord } from '../../../percolator/codec/record.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { belowSafePoint } from '../../../percolator/errors.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import type { ChangeListener, ChangePage, ChangesRequest, ExpiriesOptions, PromptLog } from '../../change-log.js'
import { WithExpiries } from '../../with-expiries.js'
import type { Engine, EngineOp } from '../engine/engine.js'
import { logBound, META_LOG_READ, valueKey, writeKey } from '../records/keyspace.js'
import { RECORD_SPAN } from './change-records.js'
import { Expiries } from './expiries.js'
import { guard, guarded } from './guard.js'
import { logRecords } from './log-records.js'
import { MergedChanges } from './merged-changes.js'
import { lostValue } from './pairs.js'
import { type ResolvedRows, ResolvedTs } from './resolved-ts.js'
import type { WrittenAhead } from './written-ahead.js'

const PAGE = 256
/** A page ends early with the value that reaches this many bytes. */
const PAGE_BYTES = 1024 * 1024
/** Values outside their records in the first read. Later reads take as many as fit by their mean size so far. */
const LONG_VALUES_AT_FIRST = 1
const LONG_VALUES_MAX = 32

export interface LoggedRows extends ResolvedRows {
  readonly engine: Engine
  readonly safePoint: Timestamp
  readonly written: Pick<WrittenAhead, 'newestOfUsers'>
  submit(ops: readonly EngineOp[]): Promise<void>
}

/**
 * CF_LOG: records of changes by commit_ts, one per group of batches that share a write. A record is placed by its lowest
 * commit_ts, so a commit that is late or ahead of the clock has its place too.
 */
export class LevelDbChangeLog implements PromptLog {
  readonly prompt: PromptLog = this
  readonly resolved: ResolvedTs
  readonly #expiries: Expiries
  readonly #rows: LoggedRows
  readonly #listeners = new Set<ChangeListener>()
  /** See META_LOG_START. */
  #begin: Timestamp
  /** See META_LOG_READ. */
  #isRead: boolean
  #removed: Timestamp = 0

  constructor(rows: LoggedRows, begin: Timestamp, isRead: boolean) {
    this.#rows = rows
    this.#begin = begin
    this.#isRead = isRead
    this.resolved = new ResolvedTs(rows)
    this.#expiries = new Expiries(() => rows.engine)
  }

  get start(): Timestamp {
    return Math.max(this.#begin, this.#rows.safePoint)
  }
  get newest(): Timestamp {
    return Math.max(this.#rows.written.newestOfUsers, this.#begin, this.#removed)
  }

  async begin(): Promise<void> {
    if (this.#isRead) return
    await guard(() => this.#rows.submit([{ type: 'put', key: META_LOG_READ, value: packRecord([1]) }]))
    this.#isRead = true
  }

  resolve(): Timestamp {
    return this.resolved.take()
  }
  heldBackBy(limit: number): LockInfo[] {
    return this.resolved.heldBackBy(limit)
  }

  // ---- Listeners

  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  get hasListeners(): boolean {
    return this.#listeners.size > 0
  }

  /** Call when the changes are on disk, before their locks are removed. */
  noteExpiries(changes: readonly LoggedChange[]): void {
    this.#expiries.note(changes)
  }

  /** Notifies the listeners. Call when the changes are on disk, before their locks are removed. */
  *notifyListeners(changes: readonly LoggedChange[]): Generator<void, void, void> {
    for (let from = 0; from < changes.length; from += SLICE_ITEMS) {
      if (from > 0) yield
      const some = changes.length <= SLICE_ITEMS ? changes : changes.slice(from, from + SLICE_ITEMS)
      for (const listener of this.#listeners) listener.onCommitted(some)
    }
  }

  reloaded(): void {
    this.#expiries.forget()
    for (const listener of this.#listeners) listener.reloaded()
  }

  /** Notes the timestamp of a delete_range. Call while it is held (`ResolvedTs.hold`). */
  noteRemoval(ts: Timestamp): void {
    this.#removed = Math.max(this.#removed, ts)
  }

  /** A restore has brought pairs that are in no log. */
  beginAt(ts: Timestamp): void {
    this.#begin = ts
    this.reloaded()
  }

  // ---- Expiries

  /** Call before the first commit. */
  loadExpiries(): Promise<void> {
    return this.#expiries.load()
  }

  mayExpire(since: Timestamp, upTo: Timestamp): boolean {
    return this.#expiries.mayExpire(since, upTo)
  }

  async *expiries(
    since: Timestamp,
    upTo: Timestamp,
    { isWanted, isLenient = false }: ExpiriesOptions = {},
  ): AsyncGenerator<readonly ExpiryChange[], void> {
    const requireReadable = (): void => (isLenient ? this.#rows.health.requireAvailable() : this.#requireLogged(since))
    try {
      requireReadable()
      for await (const page of this.#expiries.read(since, upTo, isWanted)) {
        requireReadable()
        yield page
      }
    } catch (error) {
      throw guarded(error)
    }
  }

  // ---- Reading

  async *read(request: ChangesRequest): AsyncGenerator<ChangePage, void> {
    const { since, upTo, ranges } = request
    const filter = new ChangeFilter(ranges)
    const expiries = new WithExpiries(this.#expiries.read(since, upTo, (key) => filter.hasKey(key)))
    try {
      yield* this.#read(request, filter, expiries)
    } catch (error) {
      throw guarded(error)
    } finally {
      await expiries.close()
    }
  }

  async *#read(
    { since, upTo, keysOnly, signal }: ChangesRequest,
    filter: ChangeFilter,
    expiries: WithExpiries,
  ): AsyncGenerator<ChangePage, void> {
    const isWanted = (change: LoggedChange): boolean =>
      change.commitTs > since && change.commitTs <= upTo && filter.has(change)
    const merged = new MergedChanges()
    const slicer = new TimeSlicer(1)
    const range = { gte: logBound(Math.max(0, since - RECORD_SPAN)), lt: logBound(upTo + 1) }
    let position = since
    this.#requireLogged(position)
    for await (const records of logRecords(this.#rows.engine, range)) {
      for (const [i, record] of records.entries()) {
        const pause = slicer.next()
        if (pause !== undefined) await pause
        if (signal?.aborted) return
        const changes = decodeChanges(record)
        if (merged.size >= PAGE || i === records.length - 1) {
          // No later record has a change before the first one of this record.
          const [first] = changes as [LoggedChange]
          const ready = merged.takeBefore(first)
          if (ready.length > 0 || first.commitTs - 1 > position) {
            for await (const portion of expiries.merged(ready, first.commitTs - 1))
              for await (const page of this.#pages(portion.changes, position, portion.upTo, keysOnly)) {
                position = page.upTo
                yield page
                if (signal?.aborted) return
              }
          }
        }
        merged.add(changes.filter(isWanted))
      }
    }
    for await (const portion of expiries.merged(merged.takeBefore(), upTo)) {
      if (signal?.aborted) return
      for await (const page of this.#pages(portion.changes, position, portion.upTo, keysOnly)) {
        position = page.upTo
        yield page
        if (signal?.aborted) return
      }
    }
  }

  /** @param changes everything left to return up to `upTo`, in order; the transaction of the last one may continue. */
  async *#pages(
    changes: readonly Change[],
    position: Timestamp,
    upTo: Timestamp,
    keysOnly = false,
  ): AsyncGenerator<ChangePage, void> {
    let from = 0
    do {
      const some = changes.slice(from, from + PAGE)
      const filled = keysOnly ? { changes: some, used: some.length } : await this.#filled(some, PAGE_BYTES)
      from += filled.used
      this.#requireLogged(position)
      position = Math.max(position, (changes[from]?.commitTs ?? upTo + 1) - 1)
      yield { changes: filled.changes, upTo: position }
    } while (from < changes.length)
  }

  async *withValues(changes: readonly Change[]): AsyncGenerator<readonly Change[], void> {
    try {
      for (let from = 0; from < changes.length; ) {
        const some = changes.slice(from, from + PAGE)
        const { changes: found, used } = await this.#filled(some, PAGE_BYTES)
        const [first] = some
        if (first !== undefined && found.length < used) this.#requireLogged(first.commitTs - 1)
        from += used
        yield found
      }
    } catch (error) {
      throw guarded(error)
    }
  }

  /** @throws KvError `ts_below_safe_point`, `storage_unavailable` */
  #requireLogged(since: Timestamp): void {
    this.#rows.health.requireAvailable()
    if (since < this.start) throw belowSafePoint(since, this.start)
  }

  /**
   * Adds values, up to about `bytesMax`. Leaves out what a delete_range or a collection removed.
   * @returns the first `used` changes.
   */
  async #filled(
    changes: readonly Change[],
    bytesMax: number,
  ): Promise<{ readonly changes: Change[]; readonly used: number }> {
    const writes = await this.#writesOf(changes)
    const filled: Change[] = []
    let bytes = 0
    let [long, longBytes] = [0, 0]
    let values = new Map<number, Uint8Array>()
    for (let i = 0; i < changes.length; i++) {
      const change = changes[i] as Change
      if (bytes >= bytesMax && !values.has(i)) return { changes: filled, used: i }
      if (change.type !== 'put' || change.value !== undefined) {
        filled.push(change)
        continue
      }
      const write = writes[i]
      if (write === undefined) continue
      let value = write.shortValue
      if (value === undefined && !values.has(i)) {
        const fitting = long === 0 ? LONG_VALUES_AT_FIRST : Math.ceil(((bytesMax - bytes) * long) / longBytes)
        values = await this.#longValues(changes, nextLong(changes, writes, i, Math.min(fitting, LONG_VALUES_MAX)))
      }
      value ??= values.get(i)
      if (value === undefined) {
        if ((await this.#writesOf([change]))[0] === undefined) continue
        this.#requireLogged(change.commitTs - 1)
        throw lostValue(change.key, change.startTs)
      }
      bytes += value.length
      if (write.shortValue === undefined) {
        long++
        longBytes += value.length
      }
      const { expireTs } = write
      filled.push(expireTs === 0 ? { ...change, value } : { ...change, value, expireTs })
    }
    return { changes: filled, used: changes.length }
  }

  /** The write records of the puts that lack their values; undefined when the record is gone, or is another transaction's. */
  async #writesOf(changes: readonly Change[]): Promise<(WriteRecord | undefined)[]> {
    const writes: (WriteRecord | undefined)[] = new Array(changes.length).fill(undefined)
    const asked = changes.flatMap((change, i) => (change.type === 'put' && change.value === undefined ? [i] : []))
    const keys = asked.map((i) => {
      const { key, commitTs } = changes[i] as Change
      return writeKey(key, commitTs)
    })
    const found = keys.length === 0 ? [] : await this.#rows.engine.getMany(keys)
    for (const [at, i] of asked.entries()) {
      const bytes = found[at]
      const { commitTs, startTs } = changes[i] as Change
      const write = bytes && decodeWrite(bytes, commitTs)
      if (write?.startTs === startTs && write.type === 'put') writes[i] = write
    }
    return writes
  }

  async #longValues(changes: readonly Change[], long: readonly number[]): Promise<Map<number, Uint8Array>> {
    const keys = long.map((i) => {
      const { key, startTs } = changes[i] as Change
      return valueKey(key, startTs)
    })
    const values = new Map<number, Uint8Array>()
    for (const [at, value] of (await this.#rows.engine.getMany(keys)).entries())
      if (value !== undefined) values.set(long[at] as number, value)
    return values
  }
}

/** Indexes of the next puts from `from` on whose values are outside their records. */
function nextLong(
  changes: readonly Change[],
  writes: readonly (WriteRecord | undefined)[],
  from: number,
  count: number,
): number[] {
  const long: number[] = []
  for (let i = from; i < changes.length && long.length < count; i++) {
    const write = writes[i]
    if (write !== undefined && write.shortValue === undefined) long.push(i)
  }
  return long
}
