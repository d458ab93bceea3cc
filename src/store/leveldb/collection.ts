import { gc } from '../../percolator/actions/gc.js'
import { packRecord } from '../../percolator/codec/record.js'
import { keyText } from '../../percolator/key-text.js'
import type { Mutation } from '../../percolator/row.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../percolator/timestamp.js'
import { META_SAFE_POINT } from './data-directory.js'
import { CF_DEFAULT, CF_WRITE } from './keyspace.js'
import { readAllValues, userKeys } from './row-reader.js'
import { KEYS_AT_A_TIME, type RowStore } from './row-store.js'

/** Not a key: keys have at least one byte. */
const SAFE_POINT_LATCH = ''

/** Removes what nobody can read any more, and what nobody wants. */
export class Collection {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  deleteRange({ start, end }: { readonly start: Uint8Array; readonly end: Uint8Array }): Promise<void> {
    return this.#rows.guard(async () => {
      for (const cf of [CF_WRITE, CF_DEFAULT] as const)
        for await (const keys of userKeys(this.#rows.engine, cf, { start, end })) await this.#deleteKeys(keys)
      const locked = [...this.#rows.locks.range(start, end)].map(({ key }) => key)
      for (let from = 0; from < locked.length; from += KEYS_AT_A_TIME)
        await this.#deleteKeys(locked.slice(from, from + KEYS_AT_A_TIME))
    })
  }

  async #deleteKeys(keys: readonly Uint8Array[]): Promise<void> {
    await this.#rows.latches.hold(keys.map(keyText), async () => {
      const rows = await this.#rows.readRows(keys, TIMESTAMP_MAX, () => 'all')
      const values = await Promise.all(keys.map((key) => readAllValues(this.#rows.engine, key)))
      const mutations = rows.flatMap((row, i): Mutation[] => [
        ...(row.lock === undefined ? [] : [{ type: 'delete-lock', key: row.key } as const]),
        ...row.writes.map(({ commitTs }) => ({ type: 'delete-write', key: row.key, commitTs }) as const),
        ...(values[i] ?? []).map(({ startTs }) => ({ type: 'delete-value', key: row.key, startTs }) as const),
      ])
      await this.#rows.apply(mutations)
    })
  }

  raiseSafePoint(safePoint: Timestamp): Promise<Timestamp> {
    return this.#rows.guard(() =>
      this.#rows.latches.hold([SAFE_POINT_LATCH], async () => {
        if (safePoint <= this.#rows.safePoint) return this.#rows.safePoint
        await this.#rows.submit([{ type: 'put', key: META_SAFE_POINT, value: packRecord([safePoint]) }])
        this.#rows.safePoint = safePoint
        return safePoint
      }),
    )
  }

  collect(safePoint: Timestamp): Promise<number> {
    return this.#rows.guard(async () => {
      await this.raiseSafePoint(safePoint)
      let removed = 0
      for await (const keys of userKeys(this.#rows.engine, CF_WRITE, {})) {
        await this.#rows.latches.hold(keys.map(keyText), async () => {
          const rows = await this.#rows.readRows(keys, TIMESTAMP_MAX, () => 'all')
          const collected = rows.map((row) => gc(row, safePoint))
          await this.#rows.apply(collected.flatMap(({ mutations }) => mutations))
          for (const row of collected) removed += row.removed
        })
      }
      return removed
    })
  }
}
