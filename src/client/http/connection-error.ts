/** No answer that can be used came back, after every repetition that the caller's deadline allowed. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError'
  readonly code = 'connection_failed'
  /** False only when no request can have reached the server: nothing was changed. */
  readonly mayHaveTakenEffect: boolean

  constructor(message: string, options: ErrorOptions & { readonly mayHaveTakenEffect: boolean }) {
    super(message, options)
    this.mayHaveTakenEffect = options.mayHaveTakenEffect
  }
}
