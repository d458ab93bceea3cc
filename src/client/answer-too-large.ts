import { isKvError } from '../errors/kv-error.js'

/**
 * Whether the answer was too large, so that a request for fewer keys helps. A request that is too large names a field.
 */
export function isAnswerTooLarge(error: unknown): boolean {
  return isKvError(error, 'payload_too_large') && error.fields.field === undefined
}
