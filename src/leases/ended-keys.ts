import type { Coordinator } from '../coordinator/coordinator.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { isKvError } from '../errors/kv-error.js'
import { attachedPrefix, keyOfAttached } from '../store/attached-names.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'

/** Keys that one request reads. Their values come with them, and are thrown away. */
const KEYS_AT_A_TIME = 64

/**
 * Deletes the keys that are attached to grants of leases which are over, by a transaction of two phases. Any number of servers may do
 * so for one grant at the same time.
 *
 * Nothing is missed. A transaction that has attached a key wrote the key's lock and its record before it saw its fence in force. So both stood
 * before the fence was given up, and this begins after that: it finds the record, and meets the lock or the version.
 */
export class EndedKeys {
  readonly #system: Store['system']
  readonly #coordinator: Pick<Coordinator, 'begin'>

  constructor({ system }: Pick<Store, 'system'>, coordinator: Pick<Coordinator, 'begin'>) {
    this.#system = system
    this.#coordinator = coordinator
  }

  /**
   * One try, which waits for no lock. The fence must not be in force any more.
   * @returns false: others have locked or changed some of the keys. Nothing is deleted then.
   */
  async end(fence: Timestamp): Promise<boolean> {
    const records = [...(await this.#system.list(attachedPrefix(fence))).keys()]
    if (records.length === 0) return true
    try {
      await this.#delete(fence, records.map(keyOfAttached))
    } catch (error) {
      if (MEETS_OTHERS.some((code) => isKvError(error, code))) return false
      throw error instanceof Undetermined ? error.cause : error
    }
    await this.#system.write(records.map((name) => ({ name, value: undefined })))
    return true
  }

  async #delete(fence: Timestamp, keys: readonly Uint8Array[]): Promise<void> {
    const txn = await this.#coordinator.begin({ mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0 })
    for (let at = 0; at < keys.length; at += KEYS_AT_A_TIME)
      for (const { key, leaseFence } of await txn.batchGet(keys.slice(at, at + KEYS_AT_A_TIME)))
        if (leaseFence === fence) await txn.delete(key)
    await txn.commit()
  }
}

const MEETS_OTHERS = ['key_locked', 'write_conflict', 'txn_lock_not_found', 'ts_below_safe_point'] as const
