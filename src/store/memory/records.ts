import { keyText } from '../../bytes/key-text.js'
import { Latches } from '../latches.js'
import type { StoredOutcome } from '../store.js'

/** Outcomes of idempotent requests, and what the server remembers of itself: as long as the store is open. */
export class Records {
  readonly #outcomes = new Map<string, Uint8Array>()
  readonly #server = new Map<string, Uint8Array>()
  /** One per idempotency key. */
  readonly #latches = new Latches()

  once<T>(outcome: Uint8Array, body: () => Promise<T>): Promise<T> {
    return this.#latches.hold([keyText(outcome)], body)
  }

  outcome(key: Uint8Array, isExpired: (record: Uint8Array) => boolean): Uint8Array | undefined {
    const record = this.#outcomes.get(keyText(key))
    return record !== undefined && isExpired(record) ? undefined : record
  }

  putOutcome({ key, record }: StoredOutcome): void {
    this.#outcomes.set(keyText(key), record)
  }

  collectOutcomes(isExpired: (record: Uint8Array) => boolean): number {
    let bytesLeft = 0
    for (const [key, record] of this.#outcomes) {
      if (!isExpired(record)) bytesLeft += key.length + record.length
      else if (this.#latches.isFree(key)) this.#outcomes.delete(key)
    }
    return bytesLeft
  }

  serverRecords(prefix: string): ReadonlyMap<string, Uint8Array> {
    return new Map([...this.#server].filter(([name]) => name.startsWith(prefix)))
  }

  putServerRecord(name: string, record: Uint8Array | undefined): void {
    if (record === undefined) this.#server.delete(name)
    else this.#server.set(name, record)
  }
}
