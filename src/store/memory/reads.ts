import { ENTRY_BYTES, entryCost, lockCost, pairBytes, pairCost } from '../../bytes/answer-size.js'
import { mergedRanges } from '../../bytes/key-range.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { blocksRead } from '../../percolator/actions/get.js'
import { mvccGet } from '../../percolator/actions/mvcc-get.js'
import { scanLock } from '../../percolator/actions/scan-lock.js'
import { hasExpiredSince, isNewer, judgeLock, readChanged } from '../../percolator/actions/validate-reads.js'
import type {
  BatchGetRequest,
  GetAnswer,
  GetRequest,
  MvccGetByStartTsRequest,
  MvccInfo,
  PairsAnswer,
  ScanAnswer,
  ScanLockAnswer,
  ScanLockRequest,
  ScanRequest,
  ValidateReadsRequest,
  ValuedPair,
} from '../../percolator/api.js'
import { belowSafePoint, keyLocked, keysLocked } from '../../percolator/errors.js'
import { withEnd } from '../../percolator/version-end.js'
import { expiryTs, isData, type WriteRecord } from '../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { AnswerBudget, AnswerLease } from '../answer-budget.js'
import { Visibility } from '../visibility.js'
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
    const visibility = new Visibility(this.#rows, ts)
    const pair = row && pairAt(row, ts, visibility)
    await visibility.settled()
    if (pair !== undefined) {
      const { key: _, ...version } = pair
      return { found: true, ...version }
    }
    const gone = row && versionAt(row, ts)
    return gone === undefined ? { found: false } : { found: false, deletedTs: expiryTs(gone) }
  }

  async batchGet({ keys, ts = TIMESTAMP_MAX }: BatchGetRequest): Promise<PairsAnswer> {
    this.#answers.requireRoom()
    await this.#rows.admitRead(ts)
    const rows = keys.flatMap((key) => this.#rows.table.get(key) ?? [])
    const locks = rows.flatMap((row) => this.#blocking(row, ts) ?? [])
    if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
    const visibility = new Visibility(this.#rows, ts)
    const answer = this.#counted((lease) => {
      const pairs = rows.flatMap((row) => pairAt(row, ts, visibility) ?? [])
      for (const pair of pairs) lease.grow(pairCost(pair))
      return { pairs }
    })
    await visibility.settled()
    return answer
  }

  async scan({ start, end, limit, ts, reverse, keyOnly, bytesMax }: ScanRequest): Promise<ScanAnswer> {
    this.#answers.requireRoom()
    await this.#rows.admitRead(ts)
    const locks: LockInfo[] = []
    const pairs: ValuedPair[] = []
    let bytes = 0
    let isCut = false
    const visibility = new Visibility(this.#rows, ts)
    const found = this.#counted((lease) => {
      for (const row of this.#rows.table.range({ start, end }, reverse)) {
        if (pairs.length + locks.length >= limit) break
        const lock = this.#blocking(row, ts)
        const pair = lock === undefined ? pairAt(row, ts, visibility) : undefined
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
      const answer = keyOnly ? pairs.map(({ value: _, ...pair }) => pair) : pairs
      return isCut ? { pairs: answer, isCut } : { pairs: answer }
    })
    await visibility.settled()
    return found
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
    for (const row of this.#rows.table.lockedRange(range)) {
      const lock = row.lock && this.#rows.ages.seen(row.lock)
      if (lock !== undefined && range.isWanted?.(lock) !== false) yield { key: row.key, lock }
    }
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
    for (const row of rows) {
      const { key, writes } = row
      const newer = writes.find((write) => isNewer(write, request))
      const seen = versionAt(row, startTs)
      const change = newer ?? (seen !== undefined && hasExpiredSince(seen, request) ? seen : undefined)
      if (change !== undefined) throw readChanged(key, startTs, change)
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

function versionAt({ writes }: Row, ts: Timestamp): WriteRecord | undefined {
  return writes.find((write) => write.commitTs <= ts && isData(write))
}

function pairAt(row: Row, ts: Timestamp, visibility: Visibility): ValuedPair | undefined {
  const write = versionAt(row, ts)
  if (write === undefined || !visibility.sees(write)) return undefined
  return withEnd({ key: row.key, value: valueOfPut(row, write), commitTs: write.commitTs }, write)
}

function inKeyOrder(locks: LockInfo[]): LockInfo[] {
  return locks.sort((a, b) => Buffer.compare(a.key, b.key))
}
