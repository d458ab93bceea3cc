import { OrderedKeys } from '../../bytes/ordered-keys.js'
import type { RecordReads } from '../calls/row-access.js'
import type { Latches } from '../latches.js'
import { claimOf, type SystemName, type SystemRecords, type SystemWrite } from '../system-records.js'

export class SystemMap implements SystemRecords, RecordReads {
  readonly #records = new Map<SystemName, Uint8Array>()
  readonly #order = new OrderedKeys()
  readonly #latches: Latches
  readonly #requireAvailable: () => void
  readonly #onWrite: (writes: readonly SystemWrite[]) => void

  /** @param latches shared with the keys, so that a transaction can claim keys and names at once. */
  constructor(
    latches: Latches,
    owner: { readonly requireAvailable: () => void; readonly onWrite: (writes: readonly SystemWrite[]) => void },
  ) {
    this.#latches = latches
    this.#requireAvailable = owner.requireAvailable
    this.#onWrite = owner.onWrite
  }

  hold<T>(names: readonly SystemName[], body: () => Promise<T>): Promise<T> {
    return this.#latches.hold(names.map(claimOf), body)
  }

  async get(name: SystemName): Promise<Uint8Array | undefined> {
    this.#requireAvailable()
    return this.#records.get(name)
  }

  async list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>> {
    const found = new Map<SystemName, Uint8Array>()
    for (const name of this.#order.range(prefix, undefined, false) as Generator<SystemName>) {
      if (!name.startsWith(prefix)) break
      found.set(name, this.#records.get(name) as Uint8Array)
    }
    return found
  }

  readonly isSettled = true

  now(name: SystemName): Uint8Array | undefined {
    return this.#records.get(name)
  }

  async many(names: readonly SystemName[]): Promise<(Uint8Array | undefined)[]> {
    this.#requireAvailable()
    return names.map((name) => this.#records.get(name))
  }

  async page(from: SystemName, to: SystemName, limit: number): Promise<[SystemName, Uint8Array][]> {
    this.#requireAvailable()
    const found: [SystemName, Uint8Array][] = []
    for (const name of this.#order.range(from, to, false) as Generator<SystemName>) {
      if (found.length === limit) break
      found.push([name, this.#records.get(name) as Uint8Array])
    }
    return found
  }

  async write(writes: readonly SystemWrite[]): Promise<void> {
    this.#requireAvailable()
    this.apply(writes)
    this.#onWrite(writes)
  }

  async sweep(prefix: SystemName, isOver: (value: Uint8Array) => boolean): Promise<number> {
    let bytesLeft = 0
    for (const [name, value] of await this.list(prefix)) {
      if (!isOver(value)) bytesLeft += name.length - prefix.length + value.length
      else if (this.#latches.isFree(claimOf(name))) this.apply([{ name, value: undefined }])
    }
    return bytesLeft
  }

  /** Must run in the turn of the event loop that writes the rows. */
  apply(writes: readonly SystemWrite[]): void {
    for (const { name, value } of writes) {
      if (value === undefined) {
        this.#records.delete(name)
        this.#order.delete(name)
      } else {
        this.#records.set(name, value)
        this.#order.add(name)
      }
    }
  }
}
