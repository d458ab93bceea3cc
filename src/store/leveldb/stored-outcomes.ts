import { asBuffer, keyText } from '../../percolator/key-text.js'
import type { StoredOutcome } from '../store.js'
import { type EngineOp, pagesOf } from './engine.js'
import { keyOfOutcome, OUTCOME_RANGE, outcomeKey } from './keyspace.js'
import { Latches } from './latches.js'
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

  get(key: Uint8Array): Promise<Uint8Array | undefined> {
    return this.#rows.guard(() => {
      this.#rows.requireAvailable()
      return this.#rows.engine.get(outcomeKey(key))
    })
  }

  /** Looks again under the latch: the key may have been used anew since. */
  async #collectOne(key: Buffer, isExpired: (record: Uint8Array) => boolean): Promise<void> {
    await this.#latches.hold([keyText(keyOfOutcome(key))], async () => {
      const record = await this.#rows.engine.get(key)
      if (record !== undefined && isExpired(record)) await this.#rows.submit([{ type: 'del', key }])
    })
  }

  put(outcome: StoredOutcome): Promise<void> {
    return this.#rows.guard(() => this.#rows.submit([outcomeOp(outcome)]))
  }

  collect(isExpired: (record: Uint8Array) => boolean): Promise<void> {
    return this.#rows.guard(async () => {
      this.#rows.requireAvailable()
      for await (const page of pagesOf(this.#rows.engine, OUTCOME_RANGE, PAGE))
        for (const [key, record] of page) if (isExpired(record)) await this.#collectOne(key, isExpired)
    })
  }
}

export function outcomeOp({ key, record }: StoredOutcome): EngineOp {
  return { type: 'put', key: outcomeKey(key), value: asBuffer(record) }
}
