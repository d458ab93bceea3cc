import { isKvError } from '../errors/kv-error.js'

/** Whether the answer would be too large, so that asking for fewer keys helps. A request that is too large names a `field`. */
export function isAnswerTooLarge(error: unknown): boolean {
  return isKvError(error, 'payload_too_large') && error.fields.field === undefined
}
