import { KvError } from '../../../errors/kv-error.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'

/** What the engine throws, and records that don't decode, become `storage_unavailable`. */
export async function guard<T>(body: () => Promise<T> | T): Promise<T> {
  try {
    return await body()
  } catch (error) {
    if (error instanceof CorruptRecord)
      throw new KvError('storage_unavailable', `the database is damaged: ${error.message}`, {}, { cause: error })
    if (isEngineError(error))
      throw new KvError('storage_unavailable', `the storage engine failed: ${error.message}`, {}, { cause: error })
    throw error
  }
}

/** abstract-level and classic-level mark every error of theirs with a code `LEVEL_...`. */
function isEngineError(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('LEVEL_')
}
