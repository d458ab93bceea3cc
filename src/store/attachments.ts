import type { Timestamp } from '../timestamp.js'
import type { SystemWrite } from './system-records.js'

/**
 * Keys that are deleted when a lease ends. A version that is attached to a lease has the fence of the grant (`WriteRecord.leaseFence`). Beside it
 * stands a record, by which the keys of a grant are found. A record may be older than the version, which then is not attached.
 */
export interface Attachments {
  /**
   * Learns what is attached. Until then the store takes nothing for attached.
   * @returns the fences of all grants that have records.
   */
  load(): Promise<readonly Timestamp[]>
  /** Whether keys may be attached to the grant. */
  has(fence: Timestamp): boolean
  /**
   * Deletes every key whose present version is attached to the grant, in one transaction. Its records go with it. The fence must not be
   * in force any more.
   * @param beside written in the same batch, also where there is no such key.
   * @throws KvError `key_locked` for locks of other transactions, and then changes nothing; `storage_unavailable`.
   */
  end(fence: Timestamp, beside: readonly SystemWrite[]): Promise<void>
}
