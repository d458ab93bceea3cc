import { KvError } from '../../../errors/kv-error.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'

export async function guard<T>(body: () => Promise<T> | T): Promise<T> {
  try {
    return await body()
  } catch (error) {
    throw guarded(error)
  }
}

export function guarded(error: unknown): unknown {
  if (error instanceof CorruptRecord)
    return new KvError('storage_unavailable', `the database is damaged: ${error.message}`, {}, { cause: error })
  if (isEngineError(error))
    return new KvError('storage_unavailable', `the storage engine failed: ${error.message}`, {}, { cause: error })
  return error
}

/** Every error of abstract-level and classic-level has a code `LEVEL_...`. */
function isEngineError(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('LEVEL_')
}
