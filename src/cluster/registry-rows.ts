export type RegistryName = `server/${string}` | `job/${string}`

export type Swapped = 'done' | 'refused' | 'unknown'

export interface RegistryRows {
  /**
   * Returns all rows. Strongly consistent: includes every change that had ended when the call began. @throws KvError
   * `storage_unavailable`
   */
  list(): Promise<ReadonlyMap<RegistryName, Uint8Array>>
  /** Strongly consistent. @throws KvError `storage_unavailable` */
  read(name: RegistryName): Promise<Uint8Array | undefined>
  /**
   * Writes or, for undefined, removes a row that is as expected; undefined: that has no value.
   * @returns `unknown` when the change was made, was not made, or may still be made later.
   */
  swap(name: RegistryName, expected: Uint8Array | undefined, next: Uint8Array | undefined): Promise<Swapped>
}
