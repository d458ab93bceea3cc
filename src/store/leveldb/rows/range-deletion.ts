import { keyText } from '../../../bytes/key-text.js'
import { removeVersions } from '../../../percolator/actions/remove-versions.js'
import type { RangeChange } from '../../../percolator/change.js'
import { asBytes, asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { BoundedRange } from '../../calls/end-transactions.js'
import { type EngineOp, pagesOf } from '../engine/engine.js'
import { CF_DEFAULT, CF_WRITE, RANGE_DELETIONS, rangeDeletionKey } from '../records/keyspace.js'
import { KEYS_AT_A_TIME, PAGE } from './batch-sizes.js'
import { guard } from './guard.js'
import { readAllValues, userKeys } from './row-reader.js'
import type { RowStore } from './row-store.js'

/** Pause before the next attempt to continue a deletion after a failed read. */
const RETRY_MS = 1000

interface Deletion {
  readonly start: Uint8Array
  readonly end: Uint8Array
  /**
   * commit_ts of the change that feeds show. Newer versions stay, because feeds show them after it. A commit that was calculated
   * just before may have the same timestamp; it ended before the removal, and precedes it in the feed.
   */
  readonly ts: Timestamp
}

/**
 * `delete_range`: ends transactions, and removes keys with all of their versions. A few keys are removed in one batch together
 * with the change that feeds show, more keys in steps. The change is then written before the first step, and resolved_ts stays
 * below it until the last one. A meta record lets the next start continue after a crash.
 */
export class RangeDeletion {
  readonly #rows: RowStore
  /** Ends the holds of deletions that a failed write has interrupted. */
  #unfinished: (() => void)[] = []

  constructor(rows: RowStore) {
    this.#rows = rows
    rows.onReloaded = () => this.#resumeSoon()
  }

  /** @param endTransactions see `endTransactionsIn`. */
  delete({ start, end }: BoundedRange, endTransactions: () => Promise<void>): Promise<void> {
    return guard(async () => {
      this.#rows.health.requireWritable()
      const { changes, oracle, removals } = this.#rows
      const releases: (() => unknown)[] = [changes.resolved.hold(oracle.last + 1)]
      const release = (): void => {
        for (const each of releases) each()
      }
      let isBegun = false
      try {
        const ts = await oracle.next()
        changes.noteRemoval(ts)
        // While it runs, no commit is calculated at or below `ts`. A later one may be, and is not removed.
        removals.add(ts)
        releases.push(() => removals.delete(ts))
        // A later commit at or below `ts` would be in the database, but missing from feeds. Before resolved_ts is first used,
        // clients may commit at timestamps of their choice in the past, as they may without this call.
        if (changes.resolved.passed > 0) changes.resolved.pass(ts)
        await this.#batchesInFlight(start, end)
        await endTransactions()
        const few = await this.#fewKeys(start, end)
        const deletion = { start, end, ts }
        const event: RangeChange = { type: 'delete_range', key: start, end, commitTs: ts, startTs: ts }
        if (few !== undefined) return await this.#deleteKeys(few, ts, event)
        isBegun = true
        await this.#rows.submit([recordOf(deletion)], [event])
        await this.#run(deletion)
        for (const _ of changes.notifyListeners([event]));
        isBegun = false
      } finally {
        if (isBegun) this.#unfinished.push(release)
        else release()
        this.#resumeSoon()
      }
    })
  }

  /** Commits at or below the timestamp of the deletion must be in LevelDB before its keys are looked for. */
  async #batchesInFlight(start: Uint8Array, end: Uint8Array): Promise<void> {
    const pending = [...this.#rows.locks.range(start, end)].flatMap((lock) => lock.pending ?? [])
    await Promise.allSettled(pending)
  }

  /** The keys of the range, if they fit into one batch. */
  async #fewKeys(start: Uint8Array, end: Uint8Array): Promise<Uint8Array[] | undefined> {
    const keys = new Map<string, Uint8Array>()
    for (const { key } of this.#rows.locks.range(start, end)) {
      keys.set(keyText(key), key)
      if (keys.size > KEYS_AT_A_TIME) return undefined
    }
    for (const cf of [CF_WRITE, CF_DEFAULT] as const) {
      let pages = 0
      for await (const page of userKeys(this.#rows.engine, cf, { start, end })) {
        for (const key of page) keys.set(keyText(key), key)
        if (++pages > 1 || keys.size > KEYS_AT_A_TIME) return undefined
      }
    }
    return [...keys.values()]
  }

  /** Continues deletions once writes are possible again. The client has its error; feeds may have the change. */
  #resumeSoon(): void {
    if (this.#unfinished.length === 0 || !this.#rows.health.isWritable) return
    const { reopenings } = this.#rows.health
    const holds = this.#unfinished
    this.#unfinished = []
    this.resume().then(
      () => {
        for (const release of holds) release()
      },
      () => {
        this.#unfinished.push(...holds)
        if (reopenings !== this.#rows.health.reopenings) this.#resumeSoon()
        else setTimeout(() => this.#resumeSoon(), RETRY_MS).unref() // Nothing else tries again after a failed read.
      },
    )
  }

  /** Completes interrupted deletions. */
  async resume(): Promise<void> {
    for await (const page of pagesOf(this.#rows.engine, RANGE_DELETIONS, PAGE))
      for (const [, bytes] of page) await this.#run(deletionIn(bytes))
  }

  async #run(deletion: Deletion): Promise<void> {
    const { start, end, ts } = deletion
    // Comes first, because the walks miss a key whose first version is committed behind them.
    const locked = [...this.#rows.locks.range(start, end)].map(({ key }) => key)
    for (let from = 0; from < locked.length; from += KEYS_AT_A_TIME)
      await this.#deleteKeys(locked.slice(from, from + KEYS_AT_A_TIME), ts)
    for (const cf of [CF_WRITE, CF_DEFAULT] as const)
      for await (const keys of userKeys(this.#rows.engine, cf, { start, end })) await this.#deleteKeys(keys, ts)
    await this.#rows.submit([{ type: 'del', key: rangeDeletionKey(ts) }])
  }

  /** @param event the change of the whole range, if these are all of its keys. */
  async #deleteKeys(keys: readonly Uint8Array[], upTo: Timestamp, event?: RangeChange): Promise<void> {
    await this.#rows.latches.hold(keys.map(keyText), async () => {
      const rows = await this.#rows.readRows(keys, TIMESTAMP_MAX, 'all')
      const values = await Promise.all(keys.map((key) => readAllValues(this.#rows.engine, key)))
      const events = event === undefined ? [] : [event]
      const mutations = rows.flatMap((row, i) => {
        const removal = removeVersions(row, values[i] ?? [], upTo, this.#rows.lastTs)
        events.push(...removal.ahead)
        return removal.mutations
      })
      await this.#rows.apply(mutations, {}, events)
    })
  }
}

function recordOf({ start, end, ts }: Deletion): EngineOp {
  return { type: 'put', key: rangeDeletionKey(ts), value: packRecord([start, end, ts]) }
}

function deletionIn(bytes: Uint8Array): Deletion {
  const what = 'delete_range'
  const [start, end, ts] = unpackRecord(bytes, what, 3)
  return { start: asBytes(start, what), end: asBytes(end, what), ts: asInteger(ts, what) }
}
