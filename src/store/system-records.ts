import type { PrewriteAnswer } from '../percolator/api.js'

/** What a record of the server itself is for. Each kind has a row in docs/storage-format.md. */
export type SystemKind = 'outcome' | 'pin'

/** The kind, and the name within it: one character per byte, as `keyText` makes them. */
export type SystemName = `${SystemKind}/${string}`

/** Makes what a prewrite writes beside its mutations: see `Store.prewrite`. */
export type Beside = (answer: PrewriteAnswer) => readonly SystemWrite[]

export interface SystemWrite {
  readonly name: SystemName
  /** undefined removes the record. */
  readonly value: Uint8Array | undefined
}

/** A name among the keys of a `Claim`. No key is equal to it: keys have no character above U+00FF. */
export function claimOf(name: SystemName): string {
  return `\u0100${name}`
}

/**
 * Records that the server keeps for itself, beside the keys of users: no call for keys, ranges or prefixes reaches them. They have no
 * versions. `Store.prewrite` writes them together with data; a decision about what it writes is made on records that were
 * read while their names were held, by `hold` or by a `Claim`.
 */
export interface SystemRecords {
  /**
   * Runs `body` while no other request of this process holds any of the names.
   * @param names each once. Must not be called inside `exclusive` or another `hold`: two requests could wait for each other.
   */
  hold<T>(names: readonly SystemName[], body: () => Promise<T>): Promise<T>

  /**
   * @param isFinal says of a record that nobody replaces it: it is answered even while a failed write is in doubt. Any other
   *   record, or none, may be different once LevelDB was opened again.
   * @throws KvError `storage_unavailable`, in that doubt, and whenever reads of keys do.
   */
  get(name: SystemName, isFinal?: (value: Uint8Array) => boolean): Promise<Uint8Array | undefined>

  /**
   * All records whose names begin with `prefix`, ascending: few, as memory holds them. For a start: answers while a restore is
   * incomplete too, and nothing may be decided on it later.
   */
  list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>>

  /** One atomic batch, durable when the promise is fulfilled. */
  write(writes: readonly SystemWrite[]): Promise<void>

  /**
   * Removes the records of a prefix for which `isOver` holds, in steps; those whose name is held stay for now.
   * @returns bytes of the names (without the prefix) and values of the others.
   */
  sweep(prefix: SystemName, isOver: (value: Uint8Array) => boolean): Promise<number>
}
