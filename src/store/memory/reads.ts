import { ENTRY_BYTES, entryCost, lockCost, pairBytes, pairCost } from '../../bytes/answer-size.js'
import { mergedRanges } from '../../bytes/key-range.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { blocksRead, get } from '../../percolator/actions/get.js'
import { mvccGet } from '../../percolator/actions/mvcc-get.js'
import { scanLock } from '../../percolator/actions/scan-lock.js'
import { isNewer, judgeLock, readChanged } from '../../percolator/actions/validate-reads.js'
import type {
  BatchGetRequest,
  GetAnswer,
  GetRequest,
  MvccGetByStartTsRequest,
  MvccInfo,
  Pair,
  PairsAnswer,
  ScanAnswer,
  ScanLockAnswer,
  ScanLockRequest,
  ScanRequest,
  ValidateReadsRequest,
} from '../../percolator/api.js'
import { belowSafePoint, keyLocked, keysLocked } from '../../percolator/errors.js'
import { isData } from '../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { AnswerBudget, AnswerLease } from '../answer-budget.js'
import type { MemoryRows } from './memory-rows.js'
import { type Row, valueOfPut } from './row-table.js'

const NOTHING = new Uint8Array()

/** Each read is admitted, and then takes one turn of the event loop. */
export class Reads {
  readonly #rows: MemoryRows
  readonly #answers: AnswerBudget

  constructor(rows: MemoryRows, answers: AnswerBudget) {
    this.#rows = rows
    this.#answers = answers
  }

  async get({ key, ts = TIMESTAMP_MAX }: GetRequest): Promise<GetAnswer> {
    await this.#rows.admitRead(ts)
    const row = this.#rows.table.get(key)
    const lock = row && this.#blocking(row, ts)
    if (lock !== undefined) throw keyLocked(lock)
    const pair = row && pairAt(row, ts)
    if (pair !== undefined) return { found: true, value: pair.value, commitTs: pair.commitTs }
    const deleted = row?.writes.find((write) => write.commitTs <= ts && isData(write))
    return deleted === undefined ? { found: false } : { found: false, deletedTs: deleted.commitTs }
  }

  async batchGet({ keys, ts = TIMESTAMP_MAX }: BatchGetRequest): Promise<PairsAnswer> {
    this.#answers.requireRoom()
    await this.#rows.admitRead(ts)
    const rows = keys.flatMap((key) => this.#rows.table.get(key) ?? [])
    const locks = rows.flatMap((row) => this.#blocking(row, ts) ?? [])
    if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
    return this.#counted((lease) => {
      const pairs = rows.flatMap((row) => pairAt(row, ts) ?? [])
      for (const pair of pairs) lease.grow(pairCost(pair))
      return { pairs }
    })
  }

  async scan({ start, end, limit, ts, reverse, keyOnly, bytesMax }: ScanRequest): Promise<ScanAnswer> {
    this.#answers.requireRoom()
    await this.#rows.admitRead(ts)
    const locks: LockInfo[] = []
    const pairs: Required<Pair>[] = []
    let bytes = 0
    let isCut = false
    return this.#counted((lease) => {
      for (const row of this.#rows.table.range({ start, end }, reverse)) {
        if (pairs.length + locks.length >= limit) break
        const lock = this.#blocking(row, ts)
        const pair = lock === undefined ? pairAt(row, ts) : undefined
        if (lock === undefined && pair === undefined) continue
        isCut = bytesMax !== undefined && bytes >= bytesMax
        if (isCut) break
        if (lock !== undefined) locks.push(lock)
        if (pair === undefined) continue
        pairs.push(pair)
        if (!keyOnly) bytes += pairBytes(pair)
        lease.grow(pairCost(pair))
      }
      if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
      const answer = keyOnly ? pairs.map(({ key, commitTs }) => ({ key, commitTs })) : pairs
      return isCut ? { pairs: answer, isCut } : { pairs: answer }
    })
  }

  async scanLock(request: ScanLockRequest, lease?: AnswerLease): Promise<ScanLockAnswer> {
    const { maxTs, limit = Number.POSITIVE_INFINITY } = request
    this.#rows.requireAvailable()
    if (maxTs !== TIMESTAMP_MAX) await this.#rows.observeRead(maxTs)
    const locks = scanLock(this.#locked(request), maxTs, limit)
    for (const lock of locks) lease?.grow(lockCost(lock))
    return { locks }
  }

  *#locked(range: ScanLockRequest) {
    for (const { key, lock } of this.#rows.table.range(range))
      if (lock !== undefined) yield { key, lock: this.#rows.ages.seen(lock) }
  }

  async mvccGetByKey({ key }: { readonly key: Uint8Array }): Promise<MvccInfo> {
    this.#answers.requireRoom()
    this.#rows.requireAvailable()
    return this.#counted((lease) => {
      const row = this.#rows.table.get(key)
      const values = [...(row?.values ?? [])].map(([startTs, value]) => ({ startTs, value }))
      for (const { shortValue = NOTHING } of row?.writes ?? []) lease.grow(ENTRY_BYTES + entryCost(shortValue))
      for (const { value } of values) lease.grow(entryCost(value))
      values.sort((a, b) => b.startTs - a.startTs)
      return mvccGet(this.#rows.viewOf(key), values)
    })
  }

  async mvccGetByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }> {
    const { startTs } = request
    this.#rows.requireAvailable()
    for (const { key, lock, writes } of this.#rows.table.range(request))
      if (lock?.startTs === startTs || writes.some((write) => write.startTs === startTs))
        return { key, ...(await this.mvccGetByKey({ key })) }
    return { lock: null, writes: [], values: [] }
  }

  async validateReads(request: ValidateReadsRequest): Promise<void> {
    await this.#rows.admitRead(request.commitTs)
    await this.validateNow(request)
  }

  /** Does not wait for the validated 1PC commit that all other reads wait for, since it serves that commit. */
  async validateNow(request: ValidateReadsRequest): Promise<void> {
    const { startTs, commitTs, keys, ranges } = request
    await this.#rows.observeRead(commitTs)
    this.#rows.requireReadable(commitTs)
    if (startTs < this.#rows.safePoint) throw belowSafePoint(startTs, this.#rows.safePoint)
    const rows = keys.flatMap((key) => this.#rows.table.get(key) ?? [])
    for (const range of mergedRanges(ranges)) rows.push(...this.#rows.table.range(range))
    const younger = new Map<Row, LockInfo>()
    for (const row of rows) {
      const { key, lock } = row
      const judged = lock && judgeLock(key, lock, request)
      if (lock !== undefined && judged === 'conflict') throw readChanged(key, startTs, { ...lock, commitTs: 0 })
      if (lock !== undefined && judged === 'wait') younger.set(row, this.#rows.infoOf(key, lock))
    }
    if (younger.size > 0) throw keysLocked(inKeyOrder([...younger.values()]))
    for (const { key, writes } of rows) {
      const newer = writes.find((write) => isNewer(write, request))
      if (newer !== undefined) throw readChanged(key, startTs, newer)
    }
  }

  #blocking({ key, lock }: Row, ts: Timestamp): LockInfo | undefined {
    return lock !== undefined && blocksRead(lock, key, ts) ? this.#rows.infoOf(key, lock) : undefined
  }

  #counted<T>(read: (lease: AnswerLease) => T): T {
    const lease = this.#answers.lease()
    try {
      return read(lease)
    } finally {
      lease.end()
    }
  }
}

function pairAt(row: Row, ts: Timestamp): Required<Pair> | undefined {
  const write = get(row.writes, ts)
  if (write === 'absent' || write === 'older') return undefined
  return { key: row.key, value: valueOfPut(row, write), commitTs: write.commitTs }
}

function inKeyOrder(locks: LockInfo[]): LockInfo[] {
  return locks.sort((a, b) => Buffer.compare(a.key, b.key))
}
