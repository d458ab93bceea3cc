import { ENTRY_BYTES, entryCost, lockCost, pairBytes, pairCost } from '../../../bytes/answer-size.js'
import type { KeyRange } from '../../../bytes/key-range.js'
import { keyText } from '../../../bytes/key-text.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { printKey } from '../../../errors/print-key.js'
import { inSlices } from '../../../event-loop/slices.js'
import { blocksRead } from '../../../percolator/actions/get.js'
import { mvccGet } from '../../../percolator/actions/mvcc-get.js'
import { locksWithinLimit } from '../../../percolator/actions/scan.js'
import { scanLock } from '../../../percolator/actions/scan-lock.js'
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
} from '../../../percolator/api.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { keyLocked, keysLocked } from '../../../percolator/errors.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { AnswerBudget, AnswerLease } from '../../answer-budget.js'
import { type Engine, pagesOf } from '../engine/engine.js'
import { LongReads } from '../engine/long-reads.js'
import type { LockEntry } from '../memory/lock-table.js'
import { CF_WRITE, keyRange, newestKey, valueKey } from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { KEYS_AT_A_TIME, PAGE } from './batch-sizes.js'
import { guard } from './guard.js'
import { readOlderVersion } from './older-versions.js'
import { isInFlight } from './published-locks.js'
import { readAllValues, readHistory, readValues, readVersions, scanVersions } from './row-reader.js'
import { inKeyOrder, type RowStore } from './row-store.js'

const NOT_FOUND: GetAnswer = { found: false }
const NOTHING = new Uint8Array()
/** Keys that are cheaper to look up one by one than with a snapshot, which takes LevelDB's mutex twice. */
const LOOK_UPS_MAX = 8
/** Long values that a scan reads before it looks at their size, and afterwards as many as have some `VALUES_BYTES`. */
const VALUES_AT_FIRST = 16
const VALUES_AT_A_TIME = 256
const VALUES_BYTES = 4 * 1024 * 1024

type Version = Parameters<typeof readValues>[1][number]

/** The calls that read. None of them takes a latch. */
export class Reads {
  readonly #rows: RowStore
  readonly #answers: AnswerBudget
  readonly #longReads = new LongReads()

  constructor(rows: RowStore, answers: AnswerBudget) {
    this.#rows = rows
    this.#answers = answers
  }

  /** One that holds much until it is done. @throws KvError `overloaded` */
  #readLong<T>(read: () => Promise<T>): Promise<T> {
    return guard(() =>
      this.#longReads.run(() => {
        this.#answers.requireRoom()
        return read()
      }),
    )
  }

  /** What memory says of a key, where it says all; a read that has to wait or to fail is left to `get`. */
  known({ key, ts = TIMESTAMP_MAX }: GetRequest): GetAnswer | undefined {
    const { health, safePoint, maxTs, locks, cache } = this.#rows
    if (!health.isAvailable || ts < safePoint || (ts !== TIMESTAMP_MAX && ts > maxTs)) return undefined
    const entry = locks.get(key)
    if (entry !== undefined && blocks(entry, ts)) return undefined
    const cached = cache.get(key)
    if (cached === undefined || ts < cached.commitTs) return undefined
    const { value, commitTs } = cached
    return value === undefined ? NOT_FOUND : { found: true, value, commitTs }
  }

  get({ key, ts = TIMESTAMP_MAX }: GetRequest): Promise<GetAnswer> {
    return guard(async () => {
      let missing: Timestamp | undefined
      for (;;) {
        // One turn of the event loop from here to the look at the locks: a writer sees this read in max_ts, or it sees its lock.
        await this.#rows.admitRead(ts)
        const known = this.known({ key, ts })
        if (known !== undefined) return known
        const entry = this.#rows.locks.get(key)
        if (entry !== undefined && blocks(entry, ts)) {
          if (entry.pending === undefined) throw keyLocked(this.#rows.ages.infoOf(entry))
          await entry.pending
          continue
        }
        const looked = await this.#lookUp(key, ts)
        if ('found' in looked) return looked
        // Collected since, because the key has a newer version by now; or lost.
        if (missing === looked.missing) throw lostValue(key, looked.missing)
        missing = looked.missing
      }
    })
  }

  /** Past the locks: what LevelDB says. What it says of the newest version, the cache is told too. */
  async #lookUp(key: Uint8Array, ts: Timestamp): Promise<GetAnswer | { readonly missing: Timestamp }> {
    const { engine, cache, locks, lookUps } = this.#rows
    const fill = locks.get(key) === undefined ? cache.beginFill(key) : undefined // Beside a lock a commit may be on its way.
    try {
      const looked = lookUps.get(newestKey(key))
      const bytes = looked instanceof Promise ? await looked : looked
      const newest = bytes && decodeNewest(bytes)
      const isSeen = newest === undefined || newest.commitTs <= ts
      const write = isSeen ? newest : await readOlderVersion(engine, key, ts)
      const isPut = write?.type === 'put'
      const value = isPut ? (write.shortValue ?? (await engine.get(valueKey(key, write.startTs)))) : undefined
      if (isPut && write.shortValue === undefined) this.#answers.requireRoom() // Long values of many requests add up.
      this.#rows.requireReadable(ts)
      if (isPut && value === undefined) return { missing: write.startTs }
      if (isSeen && fill !== undefined) cache.endFill(key, fill, { value, commitTs: write?.commitTs ?? 0 })
      return isPut && value !== undefined ? { found: true, value, commitTs: write.commitTs } : NOT_FOUND
    } finally {
      if (fill !== undefined) cache.cancelFill(key, fill)
    }
  }

  batchGet({ keys, ts = TIMESTAMP_MAX }: BatchGetRequest): Promise<PairsAnswer> {
    const read = async (): Promise<PairsAnswer> => {
      for (;;) {
        await this.#rows.admitRead(ts)
        const known = this.#allKnown(keys, ts)
        if (known !== undefined) return { pairs: this.#withinLimits(known) }
        const blocking = keys.flatMap((key) => {
          const entry = this.#rows.locks.get(key)
          return entry !== undefined && blocks(entry, ts) ? [entry] : []
        })
        if (blocking.length > 0) {
          await this.#rows.settledOrLocked(blocking)
          continue
        }
        const lookedUp = await this.#lookUpFew(keys, ts)
        if (lookedUp !== undefined) return { pairs: this.#withinLimits(lookedUp) }
        const lease = this.#answers.lease()
        const snapshot = this.#rows.engine.snapshot()
        try {
          const pairs: Pair[] = []
          for (let from = 0; from < keys.length; from += KEYS_AT_A_TIME) {
            const chunk = keys.slice(from, from + KEYS_AT_A_TIME)
            const writes = await readVersions(snapshot, chunk, ts)
            const found = chunk.flatMap((key, i) => {
              const write = writes[i]
              return write?.type === 'put' ? [{ key, write }] : []
            })
            await this.#readPairsInto(pairs, snapshot, found, pairCost, lease)
          }
          return { pairs }
        } finally {
          lease.end()
          await snapshot.close()
        }
      }
    }
    return keys.length > LOOK_UPS_MAX ? this.#readLong(read) : guard(read)
  }

  /**
   * One by one, where nothing can be committed at `ts` any more, so that every moment shows the same.
   * @returns undefined: left to a snapshot; also where a value went meanwhile.
   */
  async #lookUpFew(keys: readonly Uint8Array[], ts: Timestamp): Promise<Pair[] | undefined> {
    if (ts > this.#rows.maxTs || keys.length > LOOK_UPS_MAX) return undefined
    const answers = await Promise.all(keys.map((key) => this.known({ key, ts }) ?? this.#lookUp(key, ts)))
    const pairs: Pair[] = []
    for (const [i, answer] of answers.entries()) {
      if ('missing' in answer) return undefined
      if (answer.found) pairs.push({ key: keys[i] as Uint8Array, value: answer.value, commitTs: answer.commitTs })
    }
    return pairs
  }

  #allKnown(keys: readonly Uint8Array[], ts: Timestamp): Pair[] | undefined {
    const pairs: Pair[] = []
    for (const key of keys) {
      const known = this.known({ key, ts })
      if (known === undefined) return undefined
      if (known.found) pairs.push({ key, value: known.value, commitTs: known.commitTs })
    }
    return pairs
  }

  scan(request: ScanRequest): Promise<ScanAnswer> {
    const { start, end, limit, ts, reverse = false, keyOnly = false, bytesMax } = request
    return this.#readLong(async () => {
      for (;;) {
        await this.#rows.admitRead(ts)
        // In slices, before the snapshot: a writer that publishes later has seen this read in max_ts, and of one that is
        // done meanwhile the snapshot has the batch. Above max_ts anybody may still lock and commit, so the walk is told.
        const blocking: LockEntry[] = []
        const added = new Set<LockEntry>()
        const unwatch = ts > this.#rows.maxTs ? this.#rows.locks.watch((entry) => added.add(entry)) : undefined
        const visit = (entry: LockEntry): boolean => {
          if (blocks(entry, ts)) blocking.push(entry)
          return blocking.length < limit
        }
        try {
          const walked = inSlices(this.#rows.locks.walk({ start, end }, visit, reverse))
          if (walked instanceof Promise) await walked
        } finally {
          unwatch?.()
        }
        if (added.size > 0) addBlocking(blocking, added, request)
        const infos = blocking.map((entry) => this.#rows.ages.infoOf(entry))
        const pendingBefore = blocking.map((entry) => entry.pending)
        const lease = this.#answers.lease()
        const snapshot = this.#rows.engine.snapshot()
        try {
          const grow = (bytes: number): void => lease.grow(bytes)
          const found = await scanVersions(snapshot, { start, end }, ts, limit, reverse, grow)
          if (blocking.length > 0) {
            const met = new Set(locksWithinLimit(found, infos, limit, reverse).map((lock) => keyText(lock.key)))
            const pending = blocking.flatMap((entry, i) => (met.has(keyText(entry.key)) ? [pendingBefore[i]] : []))
            if (pending.some((batch) => batch !== undefined)) {
              await Promise.all(pending)
              continue
            }
            const locks = infos.filter((lock) => met.has(keyText(lock.key)))
            if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
          }
          if (keyOnly) return { pairs: found.map(({ key, write }) => ({ key, commitTs: write.commitTs })) }
          const pairs: Pair[] = []
          const isCut = await this.#readPairsInto(pairs, snapshot, found, longValueCost, lease, bytesMax)
          return isCut ? { pairs, isCut } : { pairs }
        } finally {
          lease.end()
          await snapshot.close()
        }
      }
    })
  }

  /**
   * Reads the values of versions, some at a time, and counts them before it goes on.
   * @param costOf what a pair adds to what has been counted of its version.
   * @param bytesMax of keys and values, after which it ends; undefined: an answer that grows too large is refused.
   * @returns whether it ended so.
   */
  async #readPairsInto(
    pairs: Pair[],
    engine: Parameters<typeof readPairs>[0],
    found: readonly Version[],
    costOf: (pair: Pair, version: Version) => number,
    lease: AnswerLease,
    bytesMax = Number.POSITIVE_INFINITY,
  ): Promise<boolean> {
    let bytes = 0
    for (let from = 0; from < found.length; ) {
      const some = found.slice(from, from + (from === 0 ? VALUES_AT_FIRST : valuesAtATime(bytes / from)))
      const read = await readPairs(engine, some)
      let cost = 0
      for (const [i, pair] of read.entries()) {
        pairs.push(pair)
        bytes += pairBytes(pair)
        cost += costOf(pair, some[i] as Version)
        if (bytes >= bytesMax) return from + i + 1 < found.length
      }
      lease.grow(cost)
      from += some.length
    }
    return false
  }

  /** @throws KvError `payload_too_large`, `overloaded` */
  #withinLimits(pairs: readonly Pair[]): readonly Pair[] {
    const lease = this.#answers.lease()
    try {
      lease.grow(pairs.reduce((sum, pair) => sum + pairCost(pair), 0))
      return pairs
    } finally {
      lease.end()
    }
  }

  scanLock(
    { maxTs, start, end, limit = Number.POSITIVE_INFINITY }: ScanLockRequest,
    lease?: AnswerLease,
  ): Promise<ScanLockAnswer> {
    return guard(async () => {
      this.#rows.health.requireAvailable()
      if (maxTs !== TIMESTAMP_MAX) await this.#rows.observeRead(maxTs)
      const locks: LockInfo[] = []
      const visit = (entry: LockEntry): boolean => {
        const [info] = isInFlight(entry.lock)
          ? []
          : scanLock([{ ...entry, lock: this.#rows.ages.seen(entry.lock) }], maxTs, 1)
        if (info === undefined) return true
        lease?.grow(lockCost(info))
        return locks.push(info) < limit
      }
      await inSlices(this.#rows.locks.walk({ start, end }, visit))
      return { locks }
    })
  }

  mvccGetByKey({ key }: { readonly key: Uint8Array }): Promise<MvccInfo> {
    return this.#readLong(() => this.#readWhole(key))
  }

  mvccGetByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }> {
    return guard(async () => {
      const key = await this.#firstKeyOf(request.startTs, request)
      if (key === undefined) return { lock: null, writes: [], values: [] }
      return { key, ...(await this.#readLong(() => this.#readWhole(key))) }
    })
  }

  /** A row as it is at one moment, without a latch: no batch that changes its lock is on its way when LevelDB is looked at. */
  async #readWhole(key: Uint8Array): Promise<MvccInfo> {
    this.#rows.health.requireAvailable()
    for (let pending = this.#rows.locks.get(key)?.pending; pending !== undefined; ) {
      await pending
      pending = this.#rows.locks.get(key)?.pending
    }
    const entry = this.#rows.locks.get(key)
    const lease = this.#answers.lease()
    const snapshot = this.#rows.engine.snapshot()
    try {
      const writes = await readHistory(snapshot, key, TIMESTAMP_MAX, 'all', ({ shortValue = NOTHING }) => {
        lease.grow(ENTRY_BYTES + entryCost(shortValue))
      })
      const values = await readAllValues(snapshot, key, (value) => lease.grow(entryCost(value)))
      return mvccGet({ key, lock: entry && this.#rows.ages.seen(entry.lock), writes }, values)
    } finally {
      lease.end()
      await snapshot.close()
    }
  }

  async #firstKeyOf(startTs: Timestamp, range: KeyRange): Promise<Uint8Array | undefined> {
    this.#rows.health.requireAvailable()
    const locked = await this.#firstLockedBy(startTs, range)
    for await (const page of pagesOf(this.#rows.engine, keyRange(CF_WRITE, range.start, range.end), PAGE)) {
      for (const [recordKey, bytes] of page) {
        if (decodeWrite(bytes, decodeKeyTs(recordKey)).startTs !== startTs) continue
        const written = decodeKey(recordKey)
        return locked !== undefined && Buffer.compare(locked, written) < 0 ? locked : written
      }
    }
    return locked
  }

  async #firstLockedBy(startTs: Timestamp, range: KeyRange): Promise<Uint8Array | undefined> {
    let found: Uint8Array | undefined
    const visit = ({ key, lock }: LockEntry): boolean => {
      if (lock.startTs === startTs) found = key
      return found === undefined
    }
    await inSlices(this.#rows.locks.walk(range, visit))
    return found
  }
}

/** @param bytes of a pair, on average. */
function valuesAtATime(bytes: number): number {
  return Math.min(VALUES_AT_A_TIME, Math.max(1, Math.floor(VALUES_BYTES / Math.max(1, bytes))))
}

/** A short value was counted with its version. */
function longValueCost({ value }: Pair, { write }: Version): number {
  return write.shortValue === undefined && value !== undefined ? entryCost(value) : 0
}

/** Reads of the latest version pass over primary locks: their transactions have not committed. Not over one in doubt. */
function blocks({ key, lock, isInDoubt }: LockEntry, ts: Timestamp): boolean {
  return blocksRead(lock, key, ts) || (isInDoubt === true && ts === TIMESTAMP_MAX)
}

/** @param blocking in scan order, then and now. */
function addBlocking(blocking: LockEntry[], added: Set<LockEntry>, { start, end, ts, reverse }: ScanRequest): void {
  for (const entry of blocking) added.delete(entry)
  for (const entry of added) {
    const { key } = entry
    const isWithin =
      (start === undefined || Buffer.compare(key, start) >= 0) && (end === undefined || Buffer.compare(key, end) < 0)
    if (isWithin && blocks(entry, ts)) blocking.push(entry)
  }
  blocking.sort((a, b) => (reverse ? Buffer.compare(b.key, a.key) : Buffer.compare(a.key, b.key)))
}

export async function readPairs(
  engine: Pick<Engine, 'get' | 'getMany' | 'iterator'>,
  found: Parameters<typeof readValues>[1],
): Promise<Pair[]> {
  const values = await readValues(engine, found)
  return found.map(({ key, write }, i) => {
    const value = values[i]
    if (value === undefined) throw lostValue(key, write.startTs)
    return { key, value, commitTs: write.commitTs }
  })
}

function lostValue(key: Uint8Array, startTs: Timestamp): CorruptRecord {
  return new CorruptRecord(
    `the value of ${printKey(key)} written at ${startTs} is missing`,
    `a value written at ${startTs} is missing`,
  )
}
