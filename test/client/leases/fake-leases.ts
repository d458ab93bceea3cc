import { KvError } from '../../../src/client/index.js'
import type { AcquireBackend } from '../../../src/client/leases/acquire.js'
import { signalOf } from '../../../src/event-loop/lazy-signal.js'
import type { LeaseRequest, LeaseState } from '../../../src/leases/rules/leases-api.js'

export const AWAY = new KvError('overloaded', 'the server is away', {})
export const LOST = new KvError('precondition_failed', 'the lease leader is held by b', { lease: 'leader', fence: 9 })
export const HELD = new KvError('lease_held', 'the lease leader is held by b', {
  lease: 'leader',
  holder: 'b',
  expiresAt: '2026-11-23T04:00:00.000Z',
})

/** A PUT that has no answer yet. */
export interface Asked extends LeaseRequest {
  grant(rest?: Partial<LeaseState>): void
  fail(error: unknown): void
}

/** A server of leases whose answers the test gives, and its clock. */
export class FakeLeases implements AcquireBackend {
  /** All, in order. */
  readonly asked: Asked[] = []
  readonly removed: { readonly holder: string; readonly fence: number | undefined }[] = []
  onRemove: (signal: AbortSignal | undefined) => Promise<void> = async () => {}
  /** The clock has jumped so far ahead of the timers, as when the process was stopped. */
  jumpedMs = 0

  readonly leases = {
    put: (name: string, request: LeaseRequest): Promise<LeaseState> =>
      new Promise((resolve, reject) => {
        const { holder, ttlMs, fence = 7 } = request
        const signal = signalOf(request.signal)
        const abort = (): void => reject(signal?.reason)
        const end = (): void => signal?.removeEventListener('abort', abort)
        signal?.addEventListener('abort', abort)
        this.asked.push({
          ...request,
          grant(rest = {}) {
            end()
            resolve({ name, holder, fence, ttlMs, expiresAtMs: Date.now() + ttlMs, ...rest })
          },
          fail(error) {
            end()
            reject(error)
          },
        })
      }),
    remove: async (_: string, holder: string, fence?: number, signal?: AbortSignal) => {
      this.removed.push({ holder, fence })
      await this.onRemove(signal)
      return { deleting: false }
    },
  }

  readonly during = <T>(call: () => Promise<T>): Promise<T> => call()
  readonly now = (): number => performance.now() + this.jumpedMs

  isAway(error: unknown): boolean {
    return error === AWAY
  }

  get last(): Asked {
    const last = this.asked.at(-1)
    if (last === undefined) throw new Error('nothing was asked')
    return last
  }
}

/** Of a server that does not answer. */
export function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    if (signal?.aborted) reject(signal.reason)
    signal?.addEventListener('abort', () => reject(signal.reason))
  })
}
