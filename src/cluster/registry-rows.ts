/** Rows of servers, and of the jobs that one of them does. */
export type RegistryName = `server/${string}` | `job/${string}`

export type Swapped = 'done' | 'refused' | 'unknown'

/** Rows that all servers of a store share. */
export interface RegistryRows {
  /** All of them. Strongly consistent: shows every change that had ended when it began. @throws KvError `storage_unavailable` */
  list(): Promise<ReadonlyMap<RegistryName, Uint8Array>>
  /** Strongly consistent. @throws KvError `storage_unavailable` */
  read(name: RegistryName): Promise<Uint8Array | undefined>
  /**
   * Writes or, for undefined, removes a row that is as expected; undefined: that there is none.
   * @returns `unknown` when the change may be done, may not be done, or may yet be done later.
   */
  swap(name: RegistryName, expected: Uint8Array | undefined, next: Uint8Array | undefined): Promise<Swapped>
}
