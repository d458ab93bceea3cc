/** Each kind has a row in docs/storage-format.md. */
export type SystemKind = 'pin' | 'consumer' | 'observer' | 'notify' | 'ack' | 'failure' | 'expiry' | 'lease' | 'webhook'

/** After the slash, one character per byte, as `keyText` makes it. */
export type SystemName = `${SystemKind}/${string}`

export interface SystemWrite {
  readonly name: SystemName
  readonly value: Uint8Array | undefined
}

/** The name of a system record in a `LatchSet`. It differs from every key, because keys have no character above U+00FF. */
export function latchOf(name: string): string {
  return `\u0100${name}`
}

/**
 * Records of the server itself. They have no versions, and no call for keys, ranges or prefixes reaches them.
 *
 * A write that depends on the present record must read it while the name is held, by `hold` or by a `LatchSet`.
 */
export interface SystemRecords {
  /**
   * Runs `body` while no other request of this process holds any of the names, of records or other things. Must not be called
   * inside `exclusive` or another `hold`, because two requests could then wait for each other.
   * @param names no duplicates.
   */
  hold<T>(names: readonly string[], body: () => Promise<T>): Promise<T>

  /**
   * @throws KvError `storage_unavailable` whenever reads of keys throw it, and while the outcome of a failed write is unknown:
   *   the record, or its absence, may change when LevelDB is opened again.
   */
  get(name: SystemName): Promise<Uint8Array | undefined>

  /**
   * All records whose names begin with `prefix`, ascending. They must fit into memory. Meant for the start of a server: it works
   * while a restore is incomplete, and later decisions must not depend on its answer.
   */
  list(prefix: SystemName): Promise<ReadonlyMap<SystemName, Uint8Array>>

  /**
   * Writes one atomic batch, durable when the promise is fulfilled. On a store that several servers share, each record is written
   * alone.
   */
  write(writes: readonly SystemWrite[]): Promise<void>

  /**
   * Writes one record if it is as expected. No two values of a record may be equal. If one process has the store to itself, the
   * caller holds the name.
   * @param expected undefined: no record.
   * @param value undefined removes the record.
   * @param extraRecords written in the same batch; on a store that several servers share, before it and each alone.
   * @returns whether the record is as wanted. When a record is removed and the answer is lost, another process may have done it.
   */
  replace(
    name: SystemName,
    expected: Uint8Array | undefined,
    value: Uint8Array | undefined,
    extraRecords?: readonly SystemWrite[],
  ): Promise<boolean>

  many(names: readonly SystemName[]): Promise<readonly (Uint8Array | undefined)[]>

  pages(prefix: SystemName, after?: SystemName): AsyncIterable<readonly (readonly [SystemName, Uint8Array])[]>
}
