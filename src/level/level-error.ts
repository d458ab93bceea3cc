import { ConnectionError, type ErrorCode, KvError, ServerError, Undetermined } from '../client/index.js'

/** An error with a code of abstract-level. Its cause is PerKV's error, if there is one. */
export class LevelError extends Error {
  constructor(
    readonly code: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
    this.name = code === 'LEVEL_ABORTED' ? 'AbortError' : 'LevelError'
  }
}

const CODES: Partial<Record<ErrorCode, string>> = {
  not_supported: 'LEVEL_NOT_SUPPORTED',
  storage_unavailable: 'LEVEL_IO_ERROR',
  ts_below_safe_point: 'LEVEL_SNAPSHOT_NOT_OPEN',
}
const TOO_OLD = 'the snapshot is older than the database keeps versions'

/** Makes the error that a caller of abstract-level expects of an error of PerKV. Returns other errors, such as a TypeError. */
export function levelError(error: unknown): unknown {
  if (error instanceof KvError) {
    const message = error.code === 'ts_below_safe_point' ? `${TOO_OLD}: ${error.message}` : error.message
    return new LevelError(CODES[error.code as ErrorCode] ?? codeOfPair(error), message, { cause: error })
  }
  if (error instanceof ConnectionError) return new LevelError('LEVEL_CONNECTION_LOST', error.message, { cause: error })
  if (error instanceof ServerError || error instanceof Undetermined)
    return new LevelError('LEVEL_REMOTE_ERROR', error.message, { cause: error })
  return error
}

/** The code for a key or a value that is too long, or reserved. */
function codeOfPair({ code, fields }: KvError): string {
  const field = (code === 'payload_too_large' || code === 'invalid_argument') && 'field' in fields ? fields.field : ''
  if (/\b(key|keys\[\d+\])$/.test(String(field))) return 'LEVEL_INVALID_KEY'
  // The body of a PUT is its value.
  return /\b(value|body)$/.test(String(field)) ? 'LEVEL_INVALID_VALUE' : 'LEVEL_REMOTE_ERROR'
}
