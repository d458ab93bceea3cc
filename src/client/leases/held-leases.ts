import { isKvError } from '../../errors/kv-error.js'
import { backgroundTimer } from '../../event-loop/background-timer.js'
import { onAbort } from '../../event-loop/on-abort.js'
import type { Timestamp } from '../../timestamp.js'
import { type AcquireBackend, acquire, GIVE_BACK_MS_MAX } from './acquire.js'
import { Lease } from './lease.js'
import type { LeaseOptions } from './lease-options.js'

export class HeldLeases {
  readonly #backend: AcquireBackend
  readonly #held = new Set<Lease>()
  readonly #waiting = new Map<AbortController, Promise<unknown>>()

  constructor(backend: AcquireBackend) {
    this.#backend = backend
  }

  async acquire(name: string, options: LeaseOptions): Promise<Lease> {
    const { signal } = options
    signal?.throwIfAborted()
    const stop = new AbortController()
    const unlisten = onAbort(signal, () => stop.abort(signal?.reason))
    const granting = acquire(this.#backend, name, options, stop.signal).then((grant) => {
      const lease = new Lease(this.#backend, grant, (lease) => this.#held.delete(lease))
      if (!lease.signal.aborted) this.#held.add(lease)
      return lease
    })
    this.#waiting.set(stop, granting)
    try {
      return await granting
    } finally {
      this.#waiting.delete(stop)
      unlisten()
    }
  }

  /**
   * Ends the leases that the server has declared lost.
   * @param error of a transaction. @param checked the leases that the transaction depended on.
   */
  refused(error: unknown, checked: readonly { readonly lease: string; readonly fence: Timestamp }[]): void {
    if (!isKvError(error, 'precondition_failed')) return
    for (const failed of error.fields.failedChecks ?? []) {
      if (!('lease' in failed)) continue
      const isLost = ({ name, fence }: Lease): boolean =>
        name === failed.lease &&
        fence !== failed.fence &&
        checked.some((check) => check.lease === name && check.fence === fence)
      for (const lease of [...this.#held].filter(isLost)) lease.lose(error)
    }
  }

  /**
   * Releases all leases. Waits at most a second for a server that does not answer. @param reason the error for calls that still
   * wait for a lease.
   */
  async close(reason: Error): Promise<void> {
    for (const stop of this.#waiting.keys()) stop.abort(reason)
    await Promise.allSettled(this.#waiting.values())
    const held = [...this.#held]
    const end = backgroundTimer(GIVE_BACK_MS_MAX, () => {
      for (const lease of held) lease.abandon()
    })
    await Promise.allSettled(held.map((lease) => lease.release()))
    end()
  }
}
