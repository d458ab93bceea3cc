/** The error for an answer that PerKV does not send. @param what the fault, as the beginning of a sentence. */
export function unexpectedAnswer(status: number, what: string): ServerError {
  return new ServerError('unexpected_answer', `${what}: this is no PerKV server, or something stands before it`, status)
}

/**
 * A failure whose code is unknown to this version of the client: `internal`, or a code of a newer server. `unexpected_answer`
 * when the answer has no code, because it comes from another server or from a proxy.
 */
export class ServerError extends Error {
  override readonly name = 'ServerError'
  /** False when the server refused the call with a status below 500, so that nothing has changed. */
  readonly mayHaveTakenEffect: boolean
  constructor(
    readonly code: string,
    detail: string,
    /** HTTP status. */
    readonly status: number,
    /** The other fields of the problem document, with names in camelCase. */
    readonly fields: Readonly<Record<string, unknown>> = {},
    options?: ErrorOptions,
  ) {
    super(detail, options)
    // A successful status with an unreadable body is not a refusal.
    this.mayHaveTakenEffect = status >= 500 || status < 300
  }
}
