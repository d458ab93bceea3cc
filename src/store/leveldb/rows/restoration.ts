import { pairBytes } from '../../../bytes/answer-size.js'
import { asBuffer } from '../../../bytes/key-text.js'
import { KvError } from '../../../errors/kv-error.js'
import { printKey } from '../../../errors/print-key.js'
import { SHORT_VALUE_BYTES_MAX } from '../../../limits.js'
import type { Oracle } from '../../../oracle/oracle.js'
import type { ValuedPair } from '../../../percolator/api.js'
import { decodeKey } from '../../../percolator/codec/key.js'
import { packRecord } from '../../../percolator/codec/record.js'
import { encodeWrite } from '../../../percolator/codec/write.js'
import { expiryTs } from '../../../percolator/write.js'
import type { RestoreProgress, RestoreSource, Upkeep } from '../../store.js'
import { type EngineOp, pagesOf, readPage } from '../engine/engine.js'
import {
  CF_DEFAULT,
  CF_NEWEST,
  CF_WRITE,
  EXPIRY_RANGE,
  expiryKey,
  keyRange,
  META_LOG_START,
  META_RESTORE,
  META_SAFE_POINT,
  newestKey,
  valueKey,
  writeKey,
} from '../records/keyspace.js'
import { decodeNewest, encodeNewest } from '../records/newest-record.js'
import { guard } from './guard.js'
import { NOBODY, putRestoreProgress, readRestoreProgress } from './restore-progress.js'
import type { RowStore } from './row-store.js'

const NOTHING = Buffer.alloc(0)
/** Records removed per batch. */
const REMOVED_AT_A_TIME = 10_000

/**
 * Fills an empty store with the pairs of a backup. All other calls are refused meanwhile, so it needs no latches, locks or rows:
 * each block of pairs is one batch of records together with the progress.
 */
export class Restoration {
  readonly #rows: RowStore
  readonly #oracle: Oracle
  #isRunning = false

  constructor(rows: RowStore, oracle: Oracle) {
    this.#rows = rows
    this.#oracle = oracle
  }

  restore(source: RestoreSource, blocks: Parameters<Upkeep['restore']>[1], isAnew: boolean): Promise<RestoreProgress> {
    return guard(async () => {
      if (this.#isRunning) throw new KvError('storage_unavailable', 'another restore is running', {})
      this.#isRunning = true
      let progress: RestoreProgress | undefined
      let writing: Promise<RestoreProgress> | undefined
      try {
        for await (const pairs of blocks) {
          // The next block is read and verified while this one is written.
          progress = (await writing) ?? progress ?? (await this.#begin(source, isAnew))
          writing = this.#put(pairs, progress)
          writing.catch(() => {}) // Awaited with the next block or after the loop.
        }
        progress = (await writing) ?? (await this.#begin(source, isAnew))
        await this.#complete()
        return progress
      } finally {
        await writing?.catch(() => {})
        this.#isRunning = false
      }
    })
  }

  async #begin(source: RestoreSource, isAnew: boolean): Promise<RestoreProgress> {
    const { engine, recent, cache } = this.#rows
    this.#rows.health.requireEngine()
    let found = await readRestoreProgress(engine)
    if (found !== undefined && isAnew) found = await this.#removeAll(found)
    if (found !== undefined && found.id !== source.id && found.lastKey !== undefined) throw await this.#notEmpty(found)
    const progress = found?.id === source.id ? found : { ...source, lastKey: undefined, pairs: 0, bytes: 0 }
    if (found === undefined) {
      if (!(await this.#isEmpty())) throw await this.#notEmpty()
      await this.#rows.shutOut(progress)
    }
    try {
      if (found === undefined && !(await this.#isEmpty())) throw await this.#notEmpty()
      await this.#oracle.passBy(source.ts)
      recent.noteAll(source.ts)
      cache.clear()
      // A write has failed, and reopening the database ended the refusal of other calls.
      if (this.#rows.health.restoring === undefined)
        throw new KvError('storage_unavailable', 'a write failed while the restore began', {})
      await this.#rows.submit([putRestoreProgress(progress)])
    } catch (error) {
      if (this.#rows.health.restoring === progress) this.#backTo(found)
      throw error
    }
    this.#rows.health.shutOut(progress)
    return progress
  }

  #backTo(found: RestoreProgress | undefined): void {
    if (found === undefined) this.#rows.health.letIn()
    else this.#rows.health.shutOut(found)
  }

  async #put(pairs: readonly ValuedPair[], progress: RestoreProgress): Promise<RestoreProgress> {
    const { lastKey } = progress
    const fresh = lastKey === undefined ? pairs : pairs.filter(({ key }) => Buffer.compare(key, lastKey) > 0)
    if (fresh.length === 0) return progress
    const next = {
      ...progress,
      lastKey: fresh.at(-1)?.key,
      pairs: progress.pairs + fresh.length,
      bytes: fresh.reduce((sum, pair) => sum + pairBytes(pair), progress.bytes),
    }
    await this.#rows.submit([...fresh.flatMap(recordsOf), putRestoreProgress(next)])
    this.#rows.health.shutOut(next)
    return next
  }

  /** Raises the safe point above transactions that began on the empty store, so that they cannot go on. */
  async #complete(): Promise<void> {
    const safePoint = await this.#oracle.next()
    await this.#rows.submit([
      { type: 'put', key: META_SAFE_POINT, value: packRecord([safePoint]) },
      { type: 'put', key: META_LOG_START, value: packRecord([safePoint]) },
      { type: 'del', key: META_RESTORE },
    ])
    this.#rows.cache.clear() // Reads that began on the empty store may have filled it.
    this.#rows.safePoint = safePoint
    this.#rows.changes.beginAt(safePoint)
    this.#rows.health.letIn()
  }

  /** Whether there is no record of any key. Deleted keys still have records of their deletion. */
  async #isEmpty(): Promise<boolean> {
    if (this.#rows.locks.size > 0) return false
    return (await this.#firstKey(CF_WRITE)) === undefined && (await this.#firstKey(CF_DEFAULT)) === undefined
  }

  async #notEmpty(left?: RestoreProgress): Promise<KvError<'precondition_failed'>> {
    const { locks, engine } = this.#rows
    const [locked] = locks.range()
    const key = (await this.#firstKey(CF_WRITE)) ?? (await this.#firstKey(CF_DEFAULT)) ?? locked?.key ?? Buffer.alloc(0)
    const newest = await engine.get(newestKey(key))
    const write = newest && decodeNewest(newest)
    const detail =
      left === undefined
        ? `the store is not empty: it has records of the key ${printKey(key)}`
        : `the store holds a part of another backup, of ts ${left.ts}: continue with that one, or restore with restart=true`
    return new KvError('precondition_failed', detail, { key, commitTs: write?.type === 'put' ? write.commitTs : 0 })
  }

  async #firstKey(cf: typeof CF_WRITE | typeof CF_DEFAULT): Promise<Buffer | undefined> {
    const [entry] = await readPage(this.#rows.engine, { ...keyRange(cf), values: false }, 1)
    return entry && decodeKey(entry[0])
  }

  /** Records the id NOBODY first: after a crash no backup can continue the rest, and only a restart removes it. */
  async #removeAll(left: RestoreProgress): Promise<RestoreProgress> {
    const { engine } = this.#rows
    if (left.lastKey === undefined) return left
    await this.#rows.submit([putRestoreProgress({ ...left, id: NOBODY })])
    for (const range of [keyRange(CF_WRITE), keyRange(CF_DEFAULT), keyRange(CF_NEWEST), EXPIRY_RANGE])
      for await (const page of pagesOf(engine, { ...range, values: false }, REMOVED_AT_A_TIME))
        await this.#rows.submit(page.map(([key]) => ({ type: 'del', key })))
    return { ...left, id: NOBODY, lastKey: undefined, pairs: 0, bytes: 0 }
  }
}

/** The records that a commit would write. The start_ts is unknown, so it is `commitTs - 1`. */
function recordsOf({ key, value, commitTs, expireTs = 0 }: ValuedPair): EngineOp[] {
  const startTs = commitTs - 1
  const isShort = value.length <= SHORT_VALUE_BYTES_MAX
  const write = encodeWrite({
    type: 'put',
    startTs,
    commitTs,
    shortValue: isShort ? value : undefined,
    expireTs,
    leaseFence: 0,
    isProtected: false,
    hasOverlappedRollback: false,
  })
  const records: EngineOp[] = [
    { type: 'put', key: writeKey(key, commitTs), value: write },
    { type: 'put', key: newestKey(key), value: encodeNewest(commitTs, write) },
  ]
  if (expireTs !== 0)
    records.push({ type: 'put', key: expiryKey(expiryTs({ expireTs, commitTs }), key, commitTs), value: NOTHING })
  if (!isShort) records.push({ type: 'put', key: valueKey(key, startTs), value: asBuffer(value) })
  return records
}
