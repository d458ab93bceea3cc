import { type ErrorCode, type ErrorFields, errorRow } from './registry.js'

/**
 * A failure that a caller can act on. Programs test `code`, which is stable; `fields` are sent with it. Pure actions return a
 * KvError; stores and routes throw it. Clients see no other failure except `internal`, for defects.
 */
export class KvError<C extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'KvError'
  /** Whether the failed call may have changed something. */
  readonly mayHaveTakenEffect: boolean
  /** The store would refuse the call again: a full disk, for example, or a right that is missing. */
  readonly isLasting: boolean
  /** A failed prewrite has one entry per failed key; the first entry repeats this error. */
  readonly errors: readonly KvError[] | undefined

  constructor(
    readonly code: C,
    detail: string,
    readonly fields: ErrorFields[C],
    options?: ErrorOptions & { readonly errors?: readonly KvError[]; readonly isLasting?: boolean },
  ) {
    // Expected answers, not defects. Lost races come a thousand times per second, and a stack trace costs 20 µs.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(detail, options)
    Error.stackTraceLimit = stackTraceLimit
    this.mayHaveTakenEffect = errorRow(code).mayHaveTakenEffect === true
    this.isLasting = options?.isLasting === true
    this.errors = options?.errors
  }
}

export function isKvError<C extends ErrorCode>(error: unknown, code: C): error is KvError<C> {
  return error instanceof KvError && error.code === code
}

/** Whether the transaction may succeed when it runs again from its beginning. An unknown outcome is not retryable. */
export function isRetryable(error: unknown): boolean {
  if (isKvError(error, 'write_conflict')) return error.fields.retryable ?? true
  return error instanceof KvError && errorRow(error.code).retryable === true
}

export function invalid(field: string, detail: string): KvError<'invalid_argument'> {
  return new KvError('invalid_argument', detail, { field })
}
