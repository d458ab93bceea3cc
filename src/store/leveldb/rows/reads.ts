import { pairCost } from '../../../bytes/answer-size.js'
import { keyText } from '../../../bytes/key-text.js'
import { isReserved } from '../../../bytes/reserved-keys.js'
import { type Awaitable, after } from '../../../event-loop/after.js'
import { runSliced } from '../../../event-loop/time-slicer.js'
import { blocksRead } from '../../../percolator/actions/get.js'
import { locksWithinLimit } from '../../../percolator/actions/scan.js'
import type {
  BatchGetRequest,
  GetAnswer,
  GetRequest,
  Pair,
  PairsAnswer,
  ScanAnswer,
  ScanRequest,
  Version,
} from '../../../percolator/api.js'
import { keyLocked, keysLocked } from '../../../percolator/errors.js'
import { withEnd } from '../../../percolator/version-end.js'
import { expiryTs, type WriteRecord } from '../../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { AnswerBudget } from '../../answer-budget.js'
import { Visibility } from '../../visibility.js'
import type { EngineRange } from '../engine/engine.js'
import type { LockEntry } from '../memory/lock-table.js'
import type { CachedVersion } from '../memory/version-cache.js'
import { CF_NEWEST, keyRange, newestKey, reservedRange, valueKey } from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { KEYS_AT_A_TIME } from './batch-sizes.js'
import { guard, guarded } from './guard.js'
import type { LongReads } from './long-reads.js'
import { readOlderVersion } from './older-versions.js'
import { longValueCost, lostValue, readPairsInto } from './pairs.js'
import { readVersions, scanVersions } from './row-reader.js'
import { inKeyOrder, type RowStore } from './row-store.js'

interface LookedUp {
  readonly version: CachedVersion
  readonly isNewest: boolean
}

/** start_ts of a version whose separate value was not found. */
interface Missing {
  readonly missing: Timestamp
}

const NOT_FOUND: GetAnswer = { found: false }
/** Up to this many keys, single look-ups cost less than a snapshot, which takes LevelDB's mutex twice. */
const LOOK_UPS_MAX = 8

export class Reads {
  readonly #rows: RowStore
  readonly #answers: AnswerBudget
  readonly #longReads: LongReads

  constructor(rows: RowStore, answers: AnswerBudget, longReads: LongReads) {
    this.#rows = rows
    this.#answers = answers
    this.#longReads = longReads
  }

  get({ key, ts = TIMESTAMP_MAX }: GetRequest): Awaitable<GetAnswer> {
    try {
      const answer = this.#get(key, ts)
      return answer instanceof Promise ? guard(() => answer) : answer
    } catch (error) {
      return Promise.reject(guarded(error))
    }
  }

  /** @param missing the value that an earlier try did not find. */
  #get(key: Uint8Array, ts: Timestamp, missing?: Timestamp): Awaitable<GetAnswer> {
    const admitted = this.#rows.admitRead(ts)
    if (admitted === undefined) return this.#getAdmitted(key, ts, missing)
    return admitted.then(() => this.#getAdmitted(key, ts, missing))
  }

  /**
   * Must run in the turn of the event loop that admitted the read: a writer then either sees this read in max_ts, or the read
   * sees its lock.
   */
  #getAdmitted(key: Uint8Array, ts: Timestamp, missing: Timestamp | undefined): Awaitable<GetAnswer> {
    const entry = this.#rows.locks.get(key)
    if (entry !== undefined && blocks(entry, ts)) {
      if (entry.pending === undefined) throw keyLocked(this.#rows.ages.infoOf(entry))
      return entry.pending.then(() => this.#get(key, ts, missing))
    }
    const cached = this.#cached(key, ts)
    if (cached !== undefined) return cached
    return after(this.#lookUp(key, ts), (looked) => {
      if ('found' in looked) return looked
      // A collection may have removed the value, if the key has a newer version by now. A value that is missing again is lost.
      if (missing === looked.missing) throw lostValue(key, missing)
      return this.#get(key, ts, looked.missing)
    })
  }

  /** Needs an admitted read, and no lock that blocks it. */
  #cached(key: Uint8Array, ts: Timestamp): Awaitable<GetAnswer> | undefined {
    const { cache, meters } = this.#rows
    const cached = cache.get(key)
    if (cached === undefined || ts < cached.commitTs) return undefined
    meters.cache.hits++
    return this.#answerOf(cached, ts)
  }

  /** Reads LevelDB without checking locks, and fills the cache with the newest version. */
  #lookUp(key: Uint8Array, ts: Timestamp): Awaitable<GetAnswer | Missing> {
    const { cache, locks, lookUps, meters } = this.#rows
    meters.cache.misses++
    // A lock may have a commit in flight. Reserved rows are read at most once.
    const isKept = locks.get(key) === undefined && !isReserved(key)
    const looked = after(lookUps.get(newestKey(key)), (bytes) => this.#versionAt(key, ts, bytes))
    if (!(looked instanceof Promise)) {
      if (isKept && 'version' in looked && looked.isNewest) cache.fill(key, looked.version)
      return this.#answerTo(looked, ts)
    }
    const fill = isKept ? cache.beginFill(key) : undefined
    const answer = looked.then((late) => {
      this.#rows.requireReadable(ts)
      if (fill !== undefined && 'version' in late && late.isNewest) cache.endFill(key, fill, late.version)
      return this.#answerTo(late, ts)
    })
    return fill === undefined ? answer : answer.finally(() => cache.cancelFill(key, fill))
  }

  /** @param bytes the record of the newest version. */
  #versionAt(key: Uint8Array, ts: Timestamp, bytes: Buffer | undefined): Awaitable<LookedUp | Missing> {
    const { engine, valueLookUps } = this.#rows
    const newest = bytes && decodeNewest(bytes)
    const isNewest = newest === undefined || newest.commitTs <= ts
    return after(isNewest ? newest : readOlderVersion(engine, key, ts), (write) => {
      if (write?.type !== 'put' || write.shortValue !== undefined)
        return { version: versionOf(write, write?.shortValue), isNewest }
      return after(valueLookUps.get(valueKey(key, write.startTs)), (value) => {
        this.#answers.requireRoom() // Long values of many requests add up.
        return value === undefined ? { missing: write.startTs } : { version: versionOf(write, value), isNewest }
      })
    })
  }

  #answerTo(looked: LookedUp | Missing, ts: Timestamp): Awaitable<GetAnswer | Missing> {
    return 'missing' in looked ? looked : this.#answerOf(looked.version, ts)
  }

  /**
   * Once a read of the latest version has found it expired, no later read may find it again, even if the clock is set back. So
   * later timestamps go above its expiry, for which the oracle may have to save its mark first.
   */
  #answerOf(version: CachedVersion, ts: Timestamp): Awaitable<GetAnswer> {
    const { value, expireTs } = version
    if (value === undefined) return absentOf(version)
    if (expireTs === 0) return foundOf(version, value)
    const visibility = new Visibility(this.#rows, ts)
    if (visibility.sees({ type: 'put', expireTs })) return foundOf(version, value)
    return after(visibility.observeExpired(), () => absentOf(version))
  }

  batchGet({ keys, ts = TIMESTAMP_MAX, keyOnly = false }: BatchGetRequest): Promise<PairsAnswer> {
    const read = async (): Promise<PairsAnswer> => {
      for (;;) {
        await this.#rows.admitRead(ts)
        const blocking = keys.flatMap((key) => {
          const entry = this.#rows.locks.get(key)
          return entry !== undefined && blocks(entry, ts) ? [entry] : []
        })
        if (blocking.length > 0) {
          await this.#rows.writtenOrLocked(blocking)
          continue
        }
        const cached = keyOnly ? undefined : this.#allCached(keys, ts)
        if (cached !== undefined) return { pairs: this.#withinLimits(cached) }
        const lookedUp = keyOnly ? undefined : await this.#lookUpFew(keys, ts)
        if (lookedUp !== undefined) return { pairs: this.#withinLimits(lookedUp) }
        const lease = this.#answers.lease()
        const snapshot = this.#rows.engine.snapshot()
        try {
          const visibility = new Visibility(this.#rows, ts)
          const pairs: Pair[] = []
          for (let from = 0; from < keys.length; from += KEYS_AT_A_TIME) {
            const chunk = keys.slice(from, from + KEYS_AT_A_TIME)
            const writes = await readVersions(snapshot, chunk, ts)
            const found = chunk.flatMap((key, i) => {
              const write = writes[i]
              return write !== undefined && visibility.sees(write) ? [{ key, write }] : []
            })
            if (keyOnly) pairs.push(...found.map(keyOfVersion))
            else await readPairsInto(pairs, snapshot, found, pairCost, lease)
          }
          await visibility.observeExpired()
          return { pairs }
        } finally {
          lease.end()
          await snapshot.close()
        }
      }
    }
    return keys.length > LOOK_UPS_MAX ? this.#longReads.run(read) : guard(read)
  }

  /**
   * Looks keys up one by one, without a snapshot: no commit at or below max_ts can follow, so every later moment shows the same.
   * @returns undefined when a snapshot is needed, or a value was collected in the meantime.
   */
  async #lookUpFew(keys: readonly Uint8Array[], ts: Timestamp): Promise<Pair[] | undefined> {
    if (ts > this.#rows.maxTs || keys.length > LOOK_UPS_MAX) return undefined
    const answers = await Promise.all(keys.map((key) => this.#cached(key, ts) ?? this.#lookUp(key, ts)))
    const pairs: Pair[] = []
    for (const [i, answer] of answers.entries()) {
      if ('missing' in answer) return undefined
      if (answer.found) pairs.push(pairOf(keys[i] as Uint8Array, answer))
    }
    return pairs
  }

  #allCached(keys: readonly Uint8Array[], ts: Timestamp): Pair[] | undefined {
    const pairs: Pair[] = []
    for (const key of keys) {
      const cached = this.#cached(key, ts)
      if (cached instanceof Promise) cached.catch(() => {}) // The key is read again.
      if (cached === undefined || cached instanceof Promise) return undefined
      if (cached.found) pairs.push(pairOf(key, cached))
    }
    return pairs
  }

  scan(request: ScanRequest): Promise<ScanAnswer> {
    const { start, end, limit, ts, reverse = false, keyOnly = false, bytesMax, isOfServer } = request
    return this.#longReads.run(async () => {
      for (;;) {
        await this.#rows.admitRead(ts)
        // The walk over the locks runs in slices before the snapshot. A writer that publishes locks later has seen this read in
        // max_ts; the batch of a writer that ends in the meantime is in the snapshot. Above max_ts transactions may still lock
        // and commit, so `watch` reports the locks that are put during the walk.
        const blocking: LockEntry[] = []
        const added = new Set<LockEntry>()
        const unwatch = ts > this.#rows.maxTs ? this.#rows.locks.watch((entry) => added.add(entry)) : undefined
        const visit = (entry: LockEntry): boolean => {
          if (blocks(entry, ts)) blocking.push(entry)
          return blocking.length < limit
        }
        try {
          const walked = runSliced(this.#rows.locks.walk({ start, end }, visit, { reverse, withReserved: isOfServer }))
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
          const visibility = new Visibility(this.#rows, ts)
          const isSeen = (write: WriteRecord): boolean => visibility.sees(write)
          const found = await scanVersions(snapshot, newestOf(request), ts, limit, reverse, isSeen, grow)
          await visibility.observeExpired()
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
          if (keyOnly) return { pairs: found.map(keyOfVersion) }
          const pairs: Pair[] = []
          const isCut = await readPairsInto(pairs, snapshot, found, longValueCost, lease, bytesMax)
          return isCut ? { pairs, isCut } : { pairs }
        } finally {
          lease.end()
          await snapshot.close()
        }
      }
    })
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
}

function newestOf(range: ScanRequest): EngineRange {
  if (range.isOfServer) return reservedRange(CF_NEWEST, range.start, range.end)
  return keyRange(CF_NEWEST, range.start, range.end)
}

function versionOf(write: WriteRecord | undefined, value: Uint8Array | undefined): CachedVersion {
  const { commitTs = 0, expireTs = 0, leaseFence = 0 } = write ?? {}
  return { value, commitTs, expireTs, leaseFence }
}

function pairOf(key: Uint8Array, version: Version): Pair {
  const { value, commitTs } = version
  return withEnd({ key, value, commitTs }, version)
}

function keyOfVersion({ key, write }: { readonly key: Uint8Array; readonly write: WriteRecord }): Pair {
  return withEnd({ key, commitTs: write.commitTs }, write)
}

function foundOf(version: CachedVersion, value: Uint8Array): GetAnswer {
  return withEnd({ found: true, value, commitTs: version.commitTs } as const, version)
}

function absentOf(version: CachedVersion): GetAnswer {
  const deletedTs = version.value === undefined ? version.commitTs : expiryTs(version)
  return deletedTs === 0 ? NOT_FOUND : { found: false, deletedTs }
}

/** Reads of the latest version ignore primary locks, whose transactions have not committed, but not a lock in doubt. */
function blocks({ key, lock, isInDoubt }: LockEntry, ts: Timestamp): boolean {
  return blocksRead(lock, key, ts) || (isInDoubt === true && ts === TIMESTAMP_MAX)
}

/** @param blocking in scan order, before and after. */
function addBlocking(
  blocking: LockEntry[],
  added: Set<LockEntry>,
  { start, end, ts, reverse, isOfServer = false }: ScanRequest,
): void {
  for (const entry of blocking) added.delete(entry)
  for (const entry of added) {
    const { key } = entry
    const isWithin =
      (start === undefined || Buffer.compare(key, start) >= 0) && (end === undefined || Buffer.compare(key, end) < 0)
    if (isWithin && isReserved(key) === isOfServer && blocks(entry, ts)) blocking.push(entry)
  }
  blocking.sort((a, b) => (reverse ? Buffer.compare(b.key, a.key) : Buffer.compare(a.key, b.key)))
}
