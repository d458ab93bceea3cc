import { NOTHING_TOUCHED, type TouchedKeys, touchedByOps } from '../load/touched-keys.js'
import type { Asked } from './asked.js'

export function touchedByCall(asked: Asked): TouchedKeys {
  if (asked.kind === 'get') return { keys: [asked.key], writes: false }
  if (asked.kind === 'lease') return NOTHING_TOUCHED
  return touchedByOps(asked.kind === 'kv_read' ? asked.read.ops : asked.txn.ops)
}
