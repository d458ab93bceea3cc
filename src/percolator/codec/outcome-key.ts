import { afterPrefix } from '../../bytes/key-range.js'
import { reservedKey } from './reserved-key.js'

/** Of the rows of all outcomes of Idempotency-Keys, and of nothing else. */
export const OUTCOMES: Uint8Array = reservedKey(Buffer.from('outcome/'))

const END = afterPrefix(OUTCOMES) as Uint8Array

/** The row of an outcome. @param name the Idempotency-Key, with its caller. */
export function outcomeKey(name: Uint8Array): Buffer {
  return Buffer.concat([OUTCOMES, name])
}

export function isOutcomeKey(key: Uint8Array): boolean {
  return Buffer.compare(key, OUTCOMES) >= 0 && Buffer.compare(key, END) < 0
}
