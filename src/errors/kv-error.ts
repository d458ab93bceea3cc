import { type ErrorCode, type ErrorFields, errorRow } from './registry.js'

/**
 * A failure that a caller can act on. `code` is stable and is what programs test; `fields` go on the wire beside it.
 * Pure actions return it; a store or a route throws it. Clients are shown nothing else, except `internal` for defects.
 */
export class KvError<C extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'KvError'
  /** Whether the call that failed may have changed something all the same. */
  readonly mayHaveTakenEffect: boolean
  /** A failed prewrite has one entry per failed key; the first is this error again. */
  readonly errors: readonly KvError[] | undefined

  constructor(
    readonly code: C,
    detail: string,
    readonly fields: ErrorFields[C],
    options?: ErrorOptions & { readonly errors?: readonly KvError[] },
  ) {
    // Answers, not defects: a lost race or an absent key happens a thousand times a second, and a stack costs 20 µs.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(detail, options)
    Error.stackTraceLimit = stackTraceLimit
    this.mayHaveTakenEffect = errorRow(code).mayHaveTakenEffect === true
    this.errors = options?.errors
  }
}

export function isKvError<C extends ErrorCode>(error: unknown, code: C): error is KvError<C> {
  return error instanceof KvError && error.code === code
}

/** Whether running the transaction again from its beginning may succeed. An outcome that is not known is not retryable. */
export function isRetryable(error: unknown): boolean {
  return error instanceof KvError && errorRow(error.code).retryable === true
}

export function invalid(field: string, detail: string): KvError<'invalid_argument'> {
  return new KvError('invalid_argument', detail, { field })
}
