import { pairBytes } from '../../bytes/answer-size.js'
import { KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { SHORT_VALUE_BYTES_MAX } from '../../limits.js'
import type { ValuedPair } from '../../percolator/api.js'
import type { Mutation } from '../../percolator/row.js'
import { isData } from '../../percolator/write.js'
import type { RestoreProgress, RestoreSource, Upkeep } from '../store.js'
import type { MemoryRows } from './memory-rows.js'
import type { Row } from './row-table.js'

/** Fills an empty store with the pairs of a backup. All other calls are refused meanwhile. */
export class Restoration {
  readonly #rows: MemoryRows
  #isRunning = false

  constructor(rows: MemoryRows) {
    this.#rows = rows
  }

  async restore(
    source: RestoreSource,
    blocks: Parameters<Upkeep['restore']>[1],
    isAnew: boolean,
  ): Promise<RestoreProgress> {
    if (this.#isRunning) throw new KvError('storage_unavailable', 'another restore is running', {})
    this.#isRunning = true
    try {
      let progress: RestoreProgress | undefined
      for await (const pairs of blocks) {
        progress = this.#put(pairs, progress ?? this.#begin(source, isAnew))
        await this.#rows.oracle.passBy(source.ts)
      }
      progress ??= this.#begin(source, isAnew)
      await this.#rows.oracle.passBy(source.ts)
      const safePoint = await this.#rows.oracle.next()
      this.#rows.safePoint = safePoint
      this.#rows.changes.beginAt(safePoint)
      this.#rows.restoring = undefined
      return progress
    } finally {
      this.#isRunning = false
    }
  }

  #begin(source: RestoreSource, isAnew: boolean): RestoreProgress {
    const { restoring, table } = this.#rows
    if (restoring === undefined) this.#rows.requireAvailable()
    if (restoring !== undefined && isAnew) table.clear()
    else if (restoring?.id === source.id) return restoring
    const [row] = table.range({})
    if (row !== undefined) throw notEmpty(row, restoring)
    this.#rows.restoring = { ...source, lastKey: undefined, pairs: 0, bytes: 0 }
    return this.#rows.restoring
  }

  #put(pairs: readonly ValuedPair[], progress: RestoreProgress): RestoreProgress {
    const { lastKey } = progress
    const fresh = lastKey === undefined ? pairs : pairs.filter(({ key }) => Buffer.compare(key, lastKey) > 0)
    if (fresh.length === 0) return progress
    this.#rows.table.apply(fresh.flatMap(mutationsOf))
    const bytes = fresh.reduce((sum, pair) => sum + pairBytes(pair), progress.bytes)
    this.#rows.restoring = { ...progress, lastKey: fresh.at(-1)?.key, pairs: progress.pairs + fresh.length, bytes }
    return this.#rows.restoring
  }
}

function notEmpty({ key, writes }: Row, left?: RestoreProgress): KvError<'precondition_failed'> {
  const newest = writes.find(isData)
  const detail =
    left === undefined
      ? `the store is not empty: it has records of the key ${printKey(key)}`
      : `the store holds a part of another backup, of ts ${left.ts}: continue with that one, or restore with restart=true`
  return new KvError('precondition_failed', detail, { key, commitTs: newest?.type === 'put' ? newest.commitTs : 0 })
}

/** The records that a commit would write. The start_ts is unknown, so it is `commitTs - 1`. */
function mutationsOf({ key, value, commitTs, expireTs = 0 }: ValuedPair): Mutation[] {
  const startTs = commitTs - 1
  const isShort = value.length <= SHORT_VALUE_BYTES_MAX
  const shortValue = isShort ? value : undefined
  const write = {
    type: 'put',
    startTs,
    commitTs,
    shortValue,
    expireTs,
    leaseFence: 0,
    isProtected: false,
    hasOverlappedRollback: false,
  } as const
  return [{ type: 'put-write', key, write }, ...(isShort ? [] : [{ type: 'put-value', key, startTs, value } as const])]
}
