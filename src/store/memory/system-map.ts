import type { Latches } from '../latches.js'
import { claimOf, type SystemName, type SystemRecords, type SystemWrite } from '../system-records.js'

export class SystemMap implements SystemRecords {
  readonly #records = new Map<SystemName, Uint8Array>()
  readonly #latches: Latches
  readonly #requireAvailable: () => void

  /** @param latches shared with the keys, so that a transaction can claim keys and names at once. */
  constructor(latches: Latches, requireAvailable: () => void) {
    this.#latches = latches
    this.#requireAvailable = requireAvailable
  }

  hold<T>(names: readonly SystemName[], body: () => Promise<T>): Promise<T> {
    return this.#latches.hold(names.map(claimOf), body)
  }

  async get(name: SystemName): Promise<Uint8Array | undefined> {
    this.#requireAvailable()
    return this.#records.get(name)
  }

  async list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>> {
    const found = [...this.#records].filter(([name]) => name.startsWith(prefix))
    return new Map(found.sort(([a], [b]) => (a < b ? -1 : 1)))
  }

  async write(writes: readonly SystemWrite[]): Promise<void> {
    this.#requireAvailable()
    this.apply(writes)
  }

  async sweep(prefix: SystemName, isOver: (value: Uint8Array) => boolean): Promise<number> {
    let bytesLeft = 0
    for (const [name, value] of await this.list(prefix)) {
      if (!isOver(value)) bytesLeft += name.length - prefix.length + value.length
      else if (this.#latches.isFree(claimOf(name))) this.#records.delete(name)
    }
    return bytesLeft
  }

  /** Must run in the turn of the event loop that writes the rows. */
  apply(writes: readonly SystemWrite[]): void {
    for (const { name, value } of writes) {
      if (value === undefined) this.#records.delete(name)
      else this.#records.set(name, value)
    }
  }
}
