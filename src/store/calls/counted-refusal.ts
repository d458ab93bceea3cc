import { isKvError, KvError } from '../../errors/kv-error.js'
import type { StoreMeters } from '../../meters/store-meters.js'

export function countedRefusal(meters: StoreMeters, error: unknown): unknown {
  if (error instanceof KvError)
    meters.refused(error.code, isKvError(error, 'write_conflict') ? error.fields.reason : undefined)
  return error
}
