import { expect, onTestFinished } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { Observers, type ObserversOptions } from '../../src/observers/observers.js'
import type { Notification } from '../../src/observers/rules/observers-api.js'
import type { PrewriteMutation } from '../../src/percolator/api.js'
import type { CommitEffects } from '../../src/percolator/commit-effects.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import { prewriteOf, put, text, utf8 } from '../store/support.js'

/** They are closed when the test is over: on a clock that stands still they look every millisecond whether something is due. */
export async function openObservers(store: CompleteStore, options: Partial<ObserversOptions> = {}): Promise<Observers> {
  const observers = await Observers.open(store, {
    limits: DEFAULT_LIMITS,
    context: () => expect.fail(),
    onError: (error) => {
      throw error
    },
    ...options,
  })
  onTestFinished(() => observers.close())
  return observers
}

/** Commits in one phase, now. */
export async function commit(
  store: Store,
  mutations: readonly PrewriteMutation[],
  commitEffects?: CommitEffects,
): Promise<Timestamp> {
  const request = prewriteOf(await store.tso(1), mutations, { tryOnePc: true, linearizable: true, commitEffects })
  return (await store.prewrite(request)).onePcCommitTs ?? 0
}

export const putNow = (store: Store, ...keys: string[]): Promise<Timestamp> =>
  commit(
    store,
    keys.map((key) => put(key)),
  )

/** A committed run that has seen its fences and writes nothing. */
export const runNow = (store: Store, observer: string, ...claims: readonly Notification[]): Promise<Timestamp> =>
  commit(store, [], { acks: claims.map(({ key, fence }) => ({ observer, key, fence })), seesFence: true })

export const keysOf = (notifications: readonly { readonly key: Uint8Array }[]): string[] =>
  notifications.map(({ key }) => text(key))

export const prefix = (start: string) => ({ range: { prefix: utf8(start) } })
