import { isKvError, type KvError } from '../errors/kv-error.js'

/**
 * True for a `write_conflict` caused by an acknowledgement. Its field `retryable` says whether claiming the cell again
 * makes sense.
 */
export function isAckRefused(error: unknown): error is KvError<'write_conflict'> {
  if (!isKvError(error, 'write_conflict')) return false
  return error.fields.reason === 'acknowledged' || error.fields.reason === 'superseded'
}
