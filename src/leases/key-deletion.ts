import { afterKey } from '../bytes/key-range.js'
import { locksOf, type Resolver } from '../coordinator/lock-resolver.js'
import { isKvError } from '../errors/kv-error.js'
import type { Attachments } from '../store/attachments.js'
import type { Store } from '../store/store.js'
import type { SystemWrite } from '../store/system-records.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

/** What a try has met: the keys are deleted, or other transactions have locked some, of which one is named. */
export type DeletionTried =
  | { readonly isDone: true }
  | { readonly isDone: false; readonly lockedKey?: Uint8Array | undefined }

/** Deletes the keys that are attached to grants of leases which are over. */
export class KeyDeletion {
  readonly #store: Pick<Store, 'scanLock' | 'now'>
  readonly #attachments: Pick<Attachments, 'end'>
  readonly #resolver: Pick<Resolver, 'resolving' | 'resolve'>
  readonly #stop: AbortSignal

  /** @param stop ends all waits. */
  constructor(
    store: Pick<Store, 'scanLock' | 'now'>,
    attachments: Pick<Attachments, 'end'>,
    resolver: Pick<Resolver, 'resolving' | 'resolve'>,
    stop: AbortSignal,
  ) {
    this.#store = store
    this.#attachments = attachments
    this.#resolver = resolver
    this.#stop = stop
  }

  /**
   * One try, which waits for no lock.
   * @param beside see `Attachments.end`.
   * @param lockedKey that the last try has met. To look at one key costs less than to try with all.
   */
  async try(
    fence: Timestamp,
    beside: readonly SystemWrite[],
    lockedKey: Uint8Array | undefined,
  ): Promise<DeletionTried> {
    if (lockedKey && (await this.#isLocked(lockedKey))) return { isDone: false, lockedKey }
    try {
      await this.#end(fence, beside, 0)
      return { isDone: true }
    } catch (error) {
      if (isKvError(error, 'key_locked')) return { isDone: false, lockedKey: locksOf(error)[0]?.key }
      if (isKvError(error, 'write_conflict')) return { isDone: false }
      throw error
    }
  }

  /** Waits for locks, however long they stand. */
  finish(fence: Timestamp): Promise<void> {
    return this.#end(fence, [], Number.POSITIVE_INFINITY)
  }

  #end(fence: Timestamp, beside: readonly SystemWrite[], lockWaitMs: number): Promise<void> {
    const end = () => this.#attachments.end(fence, beside)
    return this.#resolver.resolving(lockWaitMs, end, this.#stop)
  }

  /** Ends the transaction of the lock, if that is due. */
  async #isLocked(key: Uint8Array): Promise<boolean> {
    const { locks } = await this.#store.scanLock({ start: key, end: afterKey(key), maxTs: TIMESTAMP_MAX })
    return !(await this.#resolver.resolve(locks, this.#store.now()))
  }
}
