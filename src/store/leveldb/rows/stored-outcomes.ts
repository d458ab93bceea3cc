import { keyText } from '../../../bytes/key-text.js'
import { Latches } from '../../latches.js'
import type { StoredOutcome } from '../../store.js'
import { type EngineOp, pagesOf } from '../engine/engine.js'
import { keyOfOutcome, OUTCOME_RANGE, outcomeKey } from '../records/keyspace.js'
import { outcomeOp } from './engine-ops.js'
import { PAGE, type RowStore } from './row-store.js'

/** The outcomes of requests with an idempotency key. */
export class StoredOutcomes {
  readonly #rows: RowStore
  /** One an idempotency key; taken before those of user keys, never while one of them is held. */
  readonly #latches = new Latches()

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  once<T>(outcome: Uint8Array, body: () => Promise<T>): Promise<T> {
    return this.#latches.hold([keyText(outcome)], body)
  }

  /**
   * While a failed write may have landed, an outcome that is not there may show once LevelDB was opened again, and a repeat
   * that has not seen it would take effect twice. One that is there holds.
   */
  get(key: Uint8Array, isExpired: (record: Uint8Array) => boolean): Promise<Uint8Array | undefined> {
    return this.#rows.guard(async () => {
      this.#rows.requireAvailable()
      const doubt = this.#rows.isWritable ? undefined : this.#rows.engineFailed()
      const record = await this.#rows.engine.get(outcomeKey(key))
      if (record !== undefined && !isExpired(record)) return record
      if (doubt !== undefined) throw doubt
      return undefined
    })
  }

  put(outcome: StoredOutcome): Promise<void> {
    return this.#rows.guard(() => this.#rows.submit([outcomeOp(outcome)]))
  }

  collect(isExpired: (record: Uint8Array) => boolean): Promise<number> {
    return this.#rows.guard(async () => {
      this.#rows.requireAvailable()
      let bytesLeft = 0
      for await (const page of pagesOf(this.#rows.engine, OUTCOME_RANGE, PAGE)) {
        const expired: Buffer[] = []
        for (const [key, record] of page) {
          if (isExpired(record)) expired.push(key)
          else bytesLeft += keyOfOutcome(key).length + record.length
        }
        if (expired.length > 0) await this.#remove(expired, isExpired)
      }
      return bytesLeft
    })
  }

  /** Those that a request uses anew just now are left: it may take long, and overwrites them. */
  async #remove(keys: readonly Buffer[], isExpired: (record: Uint8Array) => boolean): Promise<void> {
    const latchOf = (key: Buffer): string => keyText(keyOfOutcome(key))
    const free = keys.filter((key) => this.#latches.isFree(latchOf(key)))
    await this.#latches.hold(free.map(latchOf), async () => {
      const records = await this.#rows.engine.getMany(free)
      const ops = free.flatMap((key, i): EngineOp[] => {
        const record = records[i]
        return record !== undefined && isExpired(record) ? [{ type: 'del', key }] : []
      })
      if (ops.length > 0) await this.#rows.submit(ops)
    })
  }
}
