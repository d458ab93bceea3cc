import { KvError } from '../../../errors/kv-error.js'
import { printKey } from '../../../errors/print-key.js'
import { runToEnd } from '../../../event-loop/time-slicer.js'
import { SHORT_VALUE_BYTES_MAX } from '../../../limits.js'
import type { Oracle } from '../../../oracle/oracle.js'
import type { ValuedPair } from '../../../percolator/api.js'
import { decodeKey } from '../../../percolator/codec/key.js'
import { packRecord } from '../../../percolator/codec/record.js'
import { type Begun, leftOfAnother, notRestorable, type RestoreSteps, restoredMutations } from '../../restoration.js'
import type { RestoreProgress, RestoreSource } from '../../store.js'
import { pagesOf, readPage } from '../engine/engine.js'
import {
  CF_DEFAULT,
  CF_NEWEST,
  CF_WRITE,
  EXPIRY_RANGE,
  keyRange,
  META_LOG_START,
  META_RESTORE,
  META_SAFE_POINT,
  newestKey,
} from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { engineOps, type NewestKnown } from './engine-ops.js'
import { NOBODY, putRestoreProgress, readRestoreProgress } from './restore-progress.js'
import type { RowStore } from './row-store.js'

const NOTHING = Buffer.alloc(0)
const NOTHING_STORED: NewestKnown = { bound: () => 0, stored: () => undefined }
const REMOVED_AT_A_TIME = 10_000

/**
 * Fills an empty store with the pairs of a backup. All other calls are refused during that, so it needs no latches, locks or
 * rows: each block of pairs is one batch of records together with the progress.
 */
export class LevelDbRestoring implements RestoreSteps<Begun> {
  readonly #rows: RowStore
  readonly #oracle: Oracle

  constructor(rows: RowStore, oracle: Oracle) {
    this.#rows = rows
    this.#oracle = oracle
  }

  async begin(source: RestoreSource, restart: boolean): Promise<Begun> {
    const { engine, recent, cache } = this.#rows
    this.#rows.health.requireEngine()
    let found = await readRestoreProgress(engine)
    if (found !== undefined && restart) found = await this.#removeAll(found)
    if (found !== undefined && found.id !== source.id && found.lastKey !== undefined)
      throw await this.#refusal(leftOfAnother(found))
    const run = found?.id === source.id ? found : { ...source, lastKey: undefined, pairs: 0, bytes: 0 }
    if (found === undefined) {
      await this.#requireEmpty()
      await this.#rows.shutOut(run)
    }
    try {
      if (found === undefined) await this.#requireEmpty()
      await this.#oracle.passBy(source.ts)
      recent.noteAll(source.ts)
      cache.clear()
      // A write has failed, and reopening the database has admitted other calls.
      if (this.#rows.health.restoring === undefined)
        throw new KvError('storage_unavailable', 'a write failed while the restore began', {})
      await this.#rows.submit([putRestoreProgress(run)])
    } catch (error) {
      if (this.#rows.health.restoring === run) this.#backTo(found)
      throw error
    }
    this.#rows.health.shutOut(run)
    return { run }
  }

  #backTo(found: RestoreProgress | undefined): void {
    if (found === undefined) this.#rows.health.letIn()
    else this.#rows.health.shutOut(found)
  }

  async put(pairs: readonly ValuedPair[], _: Begun, run: RestoreProgress): Promise<Begun> {
    const mutations = pairs.flatMap((pair) => restoredMutations(pair, SHORT_VALUE_BYTES_MAX))
    await this.#rows.submit([...runToEnd(engineOps(mutations, NOTHING_STORED)), putRestoreProgress(run)])
    this.#rows.health.shutOut(run)
    return { run }
  }

  async complete(): Promise<void> {
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

  /** Deleted keys still have records of their deletion. */
  async #requireEmpty(): Promise<void> {
    const key = await this.#firstOfAll()
    if (key === undefined && this.#rows.locks.size === 0) return
    throw await this.#refusal(`the store is not empty: it has records of the key ${printKey(key ?? NOTHING)}`)
  }

  async #firstOfAll(): Promise<Uint8Array | undefined> {
    const [locked] = this.#rows.locks.range()
    return (await this.#firstKey(CF_WRITE)) ?? (await this.#firstKey(CF_DEFAULT)) ?? locked?.key
  }

  async #refusal(detail: string): Promise<KvError<'precondition_failed'>> {
    const key = (await this.#firstOfAll()) ?? NOTHING
    const newest = await this.#rows.engine.get(newestKey(key))
    const write = newest && decodeNewest(newest)
    return notRestorable(detail, key, write?.type === 'put' ? write.commitTs : 0)
  }

  async #firstKey(cf: typeof CF_WRITE | typeof CF_DEFAULT): Promise<Buffer | undefined> {
    const [entry] = await readPage(this.#rows.engine, { ...keyRange(cf), values: false }, 1)
    return entry && decodeKey(entry[0])
  }

  /**
   * First records the id NOBODY: after a crash no backup can continue the rest, and only a restore with restart=true removes it.
   */
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
