import { isKvError, KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import type { Timestamp } from '../timestamp.js'

export function conditionalWriteError(key: Uint8Array, error: unknown): unknown {
  if (!isKvError(error, 'precondition_failed')) return error
  const { commitTs = 0, failedChecks = [] } = error.fields
  const [first] = failedChecks
  return preconditionFailed(key, commitTs, first !== undefined && 'exists' in first ? first.exists : undefined)
}

/** @param commitTs the key's current version; 0 when it is absent or written by this transaction. */
export function preconditionFailed(
  key: Uint8Array,
  commitTs: Timestamp,
  exists = commitTs > 0,
): KvError<'precondition_failed'> {
  const now = commitTs > 0 ? `is at version ${commitTs}` : exists ? 'is written by this transaction' : 'is absent'
  const detail = `the condition does not hold: key ${printKey(key)} ${now}`
  return new KvError('precondition_failed', detail, { key, commitTs })
}
