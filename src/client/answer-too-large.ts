import { isKvError } from '../errors/kv-error.js'

/** The server refused to answer so much at once: fewer keys will do. A request that is itself too long names a field. */
export function isAnswerTooLarge(error: unknown): boolean {
  return isKvError(error, 'payload_too_large') && error.fields.field === undefined
}
