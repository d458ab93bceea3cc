import { isKvError, type KvError } from '../errors/kv-error.js'

/** Whether a transaction was refused because of an acknowledgement. `retryable`: claiming the cell again makes sense. */
export function isAckRefused(error: unknown): error is KvError<'write_conflict'> {
  if (!isKvError(error, 'write_conflict')) return false
  return error.fields.reason === 'acknowledged' || error.fields.reason === 'superseded'
}
