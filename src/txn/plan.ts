import { keyText } from '../bytes/key-text.js'
import { SLICE_ITEMS } from '../limits.js'
import { outcomeKey } from '../percolator/codec/outcome-key.js'
import type { LatchSet } from '../store/latch-set.js'
import { effectLatches } from './commit-effects.js'
import type { OneShot } from './one-shot.js'
import { isRangeOp, isStamped } from './op.js'

/** Keys of a one-shot transaction, by `keyText`. A key may be in both sets. */
export interface OneShotKeys {
  /** Includes what the commit effects change, as in `LatchSet`. */
  readonly written: ReadonlySet<string>
  readonly read: ReadonlyMap<string, Uint8Array>
  /** More keys are written than `written` says, because only their range is known. */
  readonly deletesRange: boolean
  /** Keys in `written` that are absent may be left alone. */
  readonly touches: boolean
  /** Keys are written that only the commit_ts tells. They need no latches. */
  readonly stamps: boolean
}

export interface Plan {
  readonly keys: OneShotKeys
  /**
   * undefined when nothing is written: reads of one snapshot need no latches, and must not make other requests wait.
   * Also undefined when ranges are deleted, whose keys are unknown: the prewrite takes the latches and finds conflicts.
   */
  readonly latchSet: LatchSet | undefined
}

export function* planOf({ checks, ops, isolation, commitEffects, idempotency }: OneShot): Generator<void, Plan, void> {
  const written = new Set<string>()
  const read = new Map<string, Uint8Array>()
  /** Keys that are read and whose change would fail the commit. */
  const held = new Set<string>()
  let left = SLICE_ITEMS
  const isTime = (): boolean => {
    if (--left > 0) return false
    left = SLICE_ITEMS
    return true
  }
  for (const { key } of checks) {
    const text = keyText(key)
    read.set(text, key)
    held.add(text)
    if (isTime()) yield
  }
  for (const op of ops) {
    if (isTime()) yield
    if (isRangeOp(op) || isStamped(op)) continue
    const text = keyText(op.key)
    if (op.op !== 'get') written.add(text)
    if (op.op !== 'put' && op.op !== 'delete') read.set(text, op.key)
    // In a snapshot transaction a change of a key that is only read is no conflict.
    if (op.op === 'get' && isolation === 'serializable') held.add(text)
  }
  if (commitEffects !== undefined)
    for (const text of effectLatches(commitEffects, ops)) {
      written.add(text)
      if (isTime()) yield
    }
  const deletesRange = ops.some(({ op }) => op === 'delete_range')
  const touches = ops.some(({ op }) => op === 'touch')
  const stamps = ops.some(isStamped)
  const keys = { written, read, deletesRange, touches, stamps }
  if ((written.size === 0 && !stamps) || deletesRange) return { keys, latchSet: undefined }
  const onlyRead: string[] = []
  for (const text of held) if (!written.has(text)) onlyRead.push(text)
  // Of several serializable transactions that scan each other's writes, only one could commit.
  const isAlone = isolation === 'serializable' && ops.some(isRangeOp)
  const ownKeys = idempotency === undefined ? [] : [keyText(outcomeKey(idempotency.key))]
  return { keys, latchSet: { written: [...written, ...ownKeys], read: onlyRead, isAlone } }
}
