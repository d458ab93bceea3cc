import { keyText } from '../bytes/key-text.js'
import { attachedKey } from '../percolator/codec/attached-key.js'
import type { CommitEffects } from '../percolator/commit-effects.js'
import { nameOfConsumer } from '../store/consumers.js'
import type { HeldLeases } from '../store/held-leases.js'
import { latchOf } from '../store/system-records.js'
import type { Op } from './op.js'

/**
 * Latch names, as in `LatchSet`, for what the commit effects change: rows of cells, rows of keys that `ops` attach to leases, and
 * records of consumers. A transaction holds them as it does the keys that it writes.
 */
export function* effectLatches(
  { acks = [], notify = [], positions = [], leases = [] }: CommitEffects,
  ops: readonly Op[],
): Generator<string, void, void> {
  for (const { key } of acks) yield keyText(key)
  for (const { keys } of notify) for (const key of keys) yield keyText(key)
  for (const { consumer } of positions) yield latchOf(nameOfConsumer(consumer))
  if (leases.length === 0) return
  const fences = new Map(leases.map(({ lease, fence }) => [lease, fence]))
  for (const op of ops) {
    const fence = 'lease' in op && op.lease !== undefined ? fences.get(op.lease) : undefined
    if (fence !== undefined && 'key' in op) yield keyText(attachedKey(fence, op.key))
  }
}

export function effectCount({ acks = [], notify = [], positions = [], leases = [] }: CommitEffects): number {
  return notify.reduce((sum, { keys }) => sum + keys.length, acks.length + positions.length + leases.length)
}

/** True when a transaction that writes no key still has to be committed. */
export function mayChange({ acks = [], notify = [], positions = [] }: CommitEffects): boolean {
  return acks.length + notify.length + positions.length > 0
}

/** Checks the leases now, for a transaction that commits nothing. @throws KvError `precondition_failed` */
export async function requireLeases(leases: HeldLeases, { leases: checked = [] }: CommitEffects): Promise<void> {
  if (checked.length > 0) await leases.require(checked)
}

/** The run took place before its one-shot came, so it has seen its fence and nothing later. */
export function seeingFence(commitEffects: CommitEffects | undefined): CommitEffects | undefined {
  return commitEffects && { ...commitEffects, seesFence: true }
}
