import { afterPrefix } from '../../bytes/key-range.js'
import { reservedKey } from './reserved-key.js'

export const OUTCOMES: Uint8Array = reservedKey(Buffer.from('outcome/'))

const END = afterPrefix(OUTCOMES) as Uint8Array

export function outcomeKey(name: Uint8Array): Buffer {
  return Buffer.concat([OUTCOMES, name])
}

export function isOutcomeKey(key: Uint8Array): boolean {
  return Buffer.compare(key, OUTCOMES) >= 0 && Buffer.compare(key, END) < 0
}
