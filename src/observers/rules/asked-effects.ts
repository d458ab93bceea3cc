import { keyText } from '../../bytes/key-text.js'
import { invalid } from '../../errors/kv-error.js'
import type { AckEffect, CommitEffects } from '../../percolator/commit-effects.js'
import type { Timestamp } from '../../timestamp.js'
import { type Observer, requireInRange } from './observer.js'

export interface AskedAck {
  readonly effect: AckEffect
  readonly observer: Observer
  /** The run has seen every change up to here: its start_ts, or the fence when the work was done before the transaction. */
  readonly seen: Timestamp
}

export interface AskedNotification {
  readonly observer: Observer
  readonly key: Uint8Array
}

/**
 * Resolves and checks the acknowledgements of a transaction.
 * @param lastTs no later fence was handed out.
 * @throws KvError `invalid_argument` (`riders`) for acknowledgements that no transaction may have; the error of `named` for an
 *   unknown observer.
 */
export function askedAcks(
  { acks = [], seesFence }: CommitEffects,
  startTs: Timestamp,
  lastTs: Timestamp,
  named: (name: string) => Observer,
): AskedAck[] {
  const cells = new Set(acks.map(({ observer, key }) => `${observer} ${keyText(key)}`))
  if (cells.size < acks.length) throw invalid('riders', 'a key is acknowledged twice for one observer')
  return acks.map((effect) => {
    const { key, fence } = effect
    const observer = named(effect.observer)
    requireInRange(observer, key, () => 'riders')
    if (fence > lastTs) throw invalid('riders', `the fence ${fence} is in the future`)
    return { effect, observer, seen: seesFence ? fence : startTs }
  })
}

/** @throws as `askedAcks`. */
export function* askedNotifications(
  { notify = [] }: CommitEffects,
  named: (name: string) => Observer,
): Generator<AskedNotification, void> {
  for (const { observer: name, keys } of notify) {
    const observer = named(name)
    for (const key of keys) {
      requireInRange(observer, key, () => 'riders')
      yield { observer, key }
    }
  }
}
