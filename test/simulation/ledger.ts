import { keyText } from '../../src/bytes/key-text.js'
import type { PersistentMap } from '../../src/bytes/persistent-map.js'
import { isReserved } from '../../src/bytes/reserved-keys.js'
import { decodeChanges } from '../../src/changes/rules/codec/change-log.js'
import type { Change } from '../../src/percolator/change.js'
import { decodeKey, decodeKeyTs } from '../../src/percolator/codec/key.js'
import { decodeWrite } from '../../src/percolator/codec/write.js'
import { expiryTs, hasExpired, type WriteRecord } from '../../src/percolator/write.js'
import { unseal } from '../../src/store/leveldb/engine/checksum.js'
import type { EngineOp } from '../../src/store/leveldb/engine/engine.js'
import { CF_LOG, CF_SYSTEM, CF_WRITE, nameOfSystem, valueKey } from '../../src/store/leveldb/records/keyspace.js'
import type { SystemWrite } from '../../src/store/system-records.js'
import { RECORD, timestampOf } from '../../src/store/table/layout/layout.js'
import { isRowOfUser, keyOfRow, systemNameOf } from '../../src/store/table/layout/row-keys.js'
import type { ColumnWrite } from '../../src/store/table/layout/table.js'
import { decodeSince } from '../../src/store/table/log/feed-row.js'
import { decodeEntry, removedBy } from '../../src/store/table/log/log-record.js'
import type { Timestamp } from '../../src/timestamp.js'
import { CellLedger, type CellsSeen, type DataCommit } from './cell-ledger.js'
import { ChangeLedger, compareFed, type FedChange, type FedRange, fed } from './change-ledger.js'
import { type DiskListener, textOf } from './disk.js'
import { SharedCellLedger } from './shared-cell-ledger.js'
import type { Violations } from './violations.js'

/** Chunks of the logs of several servers. */
const LOG_ROWS = '\0\0log/'

/** A Put, Delete or Lock record that was once to be seen. */
export interface Committed {
  readonly key: string
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  readonly type: 'put' | 'delete' | 'lock'
  readonly value: string | undefined
  /** 0: it does not expire. */
  readonly expireTs: Timestamp
  /** 0: it is attached to no lease. */
  readonly leaseFence: Timestamp
  /** See `Ledger.moment`. */
  readonly bornAt: number
  /** See `Ledger.timeline`. */
  readonly bornIn: number
  lostIn: number | undefined
}

export interface SnapshotAt {
  readonly ts: Timestamp
  /** Leaves out what came to be seen later. */
  readonly moment?: number
  readonly timeline: number
  /** Leaves out what this transaction wrote. */
  readonly without?: Timestamp | undefined
}

/**
 * Every commit that ever reached the database, also those that were collected since: what the store wrote, against which
 * what clients saw is held.
 */
export class Ledger implements DiskListener {
  /** Grows when the machine crashes and takes what readers had seen, which only `async` durability lets it. */
  timeline = 0
  /** Batches that came to be seen. */
  moment = 0
  readonly #cells: CellLedger
  readonly #sharedCells: SharedCellLedger
  readonly changes: ChangeLedger
  readonly byStart = new Map<Timestamp, Committed[]>()
  /** Of each key, by commit_ts. */
  readonly #byKey = new Map<string, Committed[]>()
  /** By key and start_ts, of a store without a disk. */
  readonly #longValues = new Map<string, Uint8Array>()
  /** Of rows that do not change together: start_ts of transactions of which one record has come to be seen. */
  readonly #begun = new Set<Timestamp>()
  readonly #checks: (() => void)[] = []
  readonly #violations: Violations

  /** @param isShared rows do not come to be seen together. */
  constructor(
    violations: Violations,
    readonly isShared = false,
  ) {
    this.#violations = violations
    this.#cells = new CellLedger(violations, (key) => this.expiriesOf(key))
    this.#sharedCells = new SharedCellLedger(this)
    this.changes = new ChangeLedger(violations)
  }

  get cells(): CellsSeen {
    return this.isShared ? this.#sharedCells : this.#cells
  }

  /** What was told of a transaction is held against its records once all of them are there. */
  check(check: () => void): void {
    if (this.isShared) this.#checks.push(check)
    else check()
  }

  checkAll(): void {
    for (const check of this.#checks.splice(0)) check()
  }

  get keys(): string[] {
    return [...this.#byKey.keys()].sort()
  }

  ever(key: string): readonly Committed[] {
    return this.#byKey.get(key) ?? []
  }

  /** Puts and Deletes. */
  dataOf(key: string): readonly Committed[] {
    return this.of(key).filter(({ type }) => type !== 'lock')
  }

  readonly violate = (kind: string, detail: string): void => this.#violations.add(kind, detail)

  /** Those that were not lost, by commit_ts. */
  of(key: string): Committed[] {
    return (this.#byKey.get(key) ?? []).filter(({ lostIn }) => lostIn === undefined)
  }

  /** The Put or Delete that a read sees; what has expired is a Delete to it. */
  visible(key: string, at: SnapshotAt): Committed | undefined {
    const record = this.newest(key, at)
    if (record === undefined || !hasExpired(record.expireTs, at.ts)) return record
    return { ...record, type: 'delete', value: undefined }
  }

  /** Whether it has expired or not. */
  newest(key: string, { ts, timeline, without, moment = Number.POSITIVE_INFINITY }: SnapshotAt): Committed | undefined {
    const records = this.#byKey.get(key) ?? []
    for (let i = records.length - 1; i >= 0; i--) {
      const record = records[i] as Committed
      if (record.commitTs > ts || record.type === 'lock' || record.startTs === without) continue
      if (record.bornAt > moment) continue
      if (record.bornIn <= timeline && (record.lostIn === undefined || record.lostIn >= timeline)) return record
    }
    return undefined
  }

  /** What a feed of the range has to tell above `since` up to `upTo`, in order. */
  fedBetween(since: Timestamp, upTo: Timestamp, range: FedRange): FedChange[] {
    const found: FedChange[] = []
    const add = (change: FedChange): void => {
      const told = change.commitTs > since && change.commitTs <= upTo ? fed(change, range) : undefined
      if (told !== undefined) found.push(told)
    }
    for (const records of this.#byKey.values())
      for (const { type, key, commitTs, startTs, value, lostIn } of records)
        if (type !== 'lock' && lostIn === undefined) add({ type, key, commitTs, startTs, value, end: undefined })
    for (const key of this.#byKey.keys())
      for (const ts of this.expiriesOf(key))
        add({ type: 'expire', key, commitTs: ts, startTs: ts, value: undefined, end: undefined })
    for (const { type, key, end, commitTs, startTs } of this.changes.removals)
      add({ type, key: keyText(key), commitTs, startTs, value: undefined, end: keyText(end) })
    return found.sort(compareFed)
  }

  /** When the versions of a key above `since` expire that no other has replaced by then, as far as is committed now. */
  expiriesOf(key: string, since = 0): Timestamp[] {
    const data = this.of(key).filter(({ type }) => type !== 'lock')
    return data.flatMap((record, i) => {
      const at = expiryTs(record)
      return record.commitTs > since &&
        record.expireTs !== 0 &&
        (data[i + 1]?.commitTs ?? Number.POSITIVE_INFINITY) > at
        ? [at]
        : []
    })
  }

  /** What several servers have put before there was a reader expires without being told. */
  mayExpireUntold(key: string, ts: Timestamp): boolean {
    const found = this.newest(key, { ts, timeline: this.timeline })
    return found !== undefined && found.commitTs <= this.changes.since
  }

  /** 0: nothing expires. */
  get lastExpiry(): Timestamp {
    return Math.max(0, ...this.keys.flatMap((key) => this.expiriesOf(key)))
  }

  /** The value that a read at `ts` finds; undefined: none. */
  valueAt(key: string, ts: Timestamp): string | undefined {
    const found = this.visible(key, { ts, timeline: this.timeline })
    return found === undefined || this.changes.isRemoved(key, found.commitTs, ts) ? undefined : found.value
  }

  shown(ops: readonly EngineOp[], state: PersistentMap<Buffer>): void {
    this.moment++
    for (const removal of removalsIn(ops)) this.changes.removed(removal)
    const commits: DataCommit[] = []
    const records: SystemWrite[] = []
    for (const op of ops) {
      if (op.type === 'put' && op.key[0] === CF_WRITE) commits.push(...this.#record(op.key, op.value, state))
      if (op.key[0] === CF_SYSTEM)
        records.push({ name: nameOfSystem(op.key), value: op.type === 'put' ? unseal(op.key, op.value) : undefined })
    }
    if (commits.length > 0 || records.length > 0) this.#cells.shown(ops, commits, records)
  }

  lost(ops: readonly EngineOp[]): void {
    this.#cells.lost(ops)
    for (const removal of removalsIn(ops)) this.changes.lost(removal)
    for (const op of ops) {
      if (op.type !== 'put' || op.key[0] !== CF_WRITE) continue
      const commitTs = decodeKeyTs(op.key)
      const record = this.of(keyText(decodeKey(op.key))).find((each) => each.commitTs === commitTs)
      if (record !== undefined) record.lostIn = this.timeline
    }
  }

  /** The same of a row that several servers share. */
  written(rowKey: Buffer, writes: readonly ColumnWrite[]): void {
    this.moment++
    if (rowKey.toString('latin1').startsWith(LOG_ROWS)) this.#logged(writes)
    else this.#writtenRow(rowKey, writes)
  }

  #writtenRow(rowKey: Buffer, writes: readonly ColumnWrite[]): void {
    const key = keyText(keyOfRow(rowKey))
    for (const { family, qualifier, value } of writes)
      if (family === 'd' && value !== undefined)
        this.#longValues.set(`${key} ${timestampOf(qualifier, 'value')}`, value)
    const isRowOfServer = !isRowOfUser(rowKey)
    for (const { family, qualifier, value } of writes) {
      if (family === 'o' && qualifier.equals(RECORD)) this.#recorded(systemNameOf(rowKey), value)
      if ((family !== 'w' && family !== 'r') || value === undefined) continue
      const write = decodeWrite(value, timestampOf(qualifier, 'write'))
      this.#committed(write)
      if (isRowOfServer) this.#sharedCells.written(keyOfRow(rowKey), write)
      else this.#note(key, write, write.shortValue ?? this.#longValues.get(`${key} ${write.startTs}`))
    }
  }

  /** A record of the server. */
  #recorded(name: string, value: Buffer | undefined): void {
    if (name === 'feed' && value !== undefined) this.changes.since = decodeSince(value)
    this.#sharedCells.recorded(name, value)
  }

  /** The first of a transaction is that of its primary. */
  #committed({ type, startTs, commitTs }: WriteRecord): void {
    if (type === 'rollback' || this.#begun.has(startTs)) return
    this.#begun.add(startTs)
    this.changes.committed(`the transaction of ${startTs}`, commitTs)
  }

  /** A delete_range that a server has decided is finished, whatever becomes of the server. */
  #logged(writes: readonly ColumnWrite[]): void {
    for (const { family, value } of writes)
      for (const decision of family === 'd' && value !== undefined ? decodeEntry(value).decisions : []) {
        const range = removedBy(decision)
        const { startTs, commitTs } = decision
        if (range !== undefined)
          this.changes.removed({ type: 'delete_range', key: range.start, end: range.end, startTs, commitTs })
      }
  }

  #record(recordKey: Buffer, bytes: Buffer, state: PersistentMap<Buffer>): DataCommit[] {
    const rawKey = decodeKey(recordKey)
    if (isReserved(rawKey)) return [] // The server's own.
    const write = decodeWrite(unseal(recordKey, bytes), decodeKeyTs(recordKey))
    const valueAt = valueKey(rawKey, write.startTs)
    const long = state.get(textOf(valueAt))
    return this.#note(keyText(rawKey), write, write.shortValue ?? (long && unseal(valueAt, long)))
  }

  /** @param stored the value, long or short. @returns the Put or Delete, when it is new. */
  #note(key: string, write: WriteRecord, stored: Uint8Array | undefined): DataCommit[] {
    const { type, startTs, commitTs, expireTs, leaseFence } = write
    const records = this.#byKey.get(key) ?? []
    this.#byKey.set(key, records)
    const before = records.find((each) => each.commitTs === commitTs && each.lostIn === undefined)
    if (before !== undefined && (before.startTs !== startTs || before.type !== type))
      this.#violations.add(
        'overwritten',
        `${before.type} of ${before.startTs} on ${key} at ${commitTs} by ${type} of ${startTs}`,
      )
    if (before !== undefined || type === 'rollback') return []
    if (type === 'put' && stored === undefined)
      this.#violations.add('no value', `the put of ${startTs} on ${key} at ${commitTs} has no value`)
    const value = type === 'put' && stored !== undefined ? Buffer.from(stored).toString() : undefined
    const born = { bornAt: this.moment, bornIn: this.timeline, lostIn: undefined }
    const record: Committed = { key, commitTs, startTs, type, value, expireTs, leaseFence, ...born }
    const place = records.findLastIndex((each) => each.commitTs <= commitTs) + 1
    records.splice(place, 0, record)
    const own = this.byStart.get(startTs)
    if (own === undefined) this.byStart.set(startTs, [record])
    else own.push(record)
    if (type === 'lock') return []
    if (!this.isShared) this.changes.committed(`${type} of ${startTs} on ${key}`, commitTs)
    return [record]
  }
}

function removalsIn(ops: readonly EngineOp[]): (Change & { readonly type: 'delete_range' })[] {
  return ops.flatMap((op) =>
    op.type === 'put' && op.key[0] === CF_LOG
      ? decodeChanges(unseal(op.key, op.value)).filter((change) => change.type === 'delete_range')
      : [],
  )
}
